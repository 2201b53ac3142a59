/* Draws the dictionary of fedstein.report.views: the same code in the live page and in the report. */
(function () {
  "use strict";
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
  const ON_DARK = ["#4ba3dc", "#f0883e", "#2fc79a", "#e29dc4", "#f2b63c", "#8fd0f5"];
  const NAMES = { accuracy: "Accuracy", nll: "NLL", ece: "ECE", rmse: "RMSE", brier: "Brier score", mce: "MCE", temperature: "Temperature",
    bytes: "Sent and received", gradients: "Row-gradients", seconds: "Time in rounds" };
  const LONG = { accuracy: "Accuracy", nll: "NLL of a row (nats)",
    ece: "Expected calibration error", rmse: "Root mean squared error", brier: "Brier score", mce: "Maximum calibration error", temperature: "Calibration temperature T" };
  const AXES = { round: "Round", bytes: "Bytes sent and received so far", gradients: "Row-gradients so far", seconds: "Seconds in rounds so far" };
  const still = { animation: false, backgroundColor: "transparent" };
  let root = null, data = null, axis = "round", colouring = "probability", chosen = null, frame = null;

  /* ---- small helpers ---- */
  function h(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key === "text") node.textContent = value;
      else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
    }
    for (const child of children) if (child !== null && child !== undefined) node.append(child);
    return node;
  }
  const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;
  const colour = (i) => (dark() ? ON_DARK : COLOURS)[i % COLOURS.length];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function number(value, digits) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e5 || size < 1e-4) return value.toExponential(2).replace("e+", "e");
    if (Number.isInteger(value) && digits === undefined) return value.toLocaleString("en");
    return String(Number(value.toPrecision(digits || 4)));
  }
  function units(value, steps) {
    for (const [unit, name] of steps) if (Math.abs(value) >= unit) return number(value / unit, 3) + " " + name;
    return number(value, 3) + " " + steps[steps.length - 1][1];
  }
  const bytes = (value) => value === null ? "–" : units(value, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);
  const seconds = (value) => value === null ? "–" : value >= 7200 ? units(value, [[3600, "h"]]) : value >= 120 ? units(value, [[60, "min"]]) : number(value, 3) + " s";
  const gradients = (value) => value === null ? "–" : value >= 1e3 ? units(value, [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]).replace(" ", "\u2009") : number(value, 3);
  const shownAs = { bytes, seconds, gradients, round: (v) => number(Math.round(v)) };
  const format = (name, value) => (shownAs[name] || ((v) => number(v)))(value);

  /* ---- charts, drawn when they come near the window ---- */
  const pending = new Map();
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      entry.target.near = entry.isIntersecting;
      if (entry.isIntersecting) flush(entry.target);
    }
  }, { rootMargin: "250px" });
  const sized = new ResizeObserver((entries) => {
    for (const entry of entries) {
      const instance = window.echarts.getInstanceByDom(entry.target);
      if (instance && entry.target.clientWidth) { instance.resize(); if (entry.target.option) instance.setOption(entry.target.option(), { notMerge: true }); }
    }
  });
  function flush(node) {
    const option = pending.get(node);
    if (!option || !node.isConnected || !node.clientWidth) return;
    pending.delete(node);
    const instance = window.echarts.getInstanceByDom(node) || window.echarts.init(node, null, { renderer: "canvas" });
    node.option = option;
    instance.setOption(option(), { notMerge: true });
    sized.observe(node);
  }
  function draw(node, label, option) {
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", label);
    pending.set(node, option);
    seen.observe(node);
    if (node.near) flush(node);
  }
  function drawAll() { for (const node of [...pending.keys()]) flush(node); }
  function redraw() { document.querySelectorAll(".chart").forEach((node) => { if (node.option) { pending.set(node, node.option); flush(node); } }); }

  function look() {
    const ink = css("--ink"), muted = css("--muted"), grid = css("--grid");
    return { ink, muted, grid, card: css("--card"),
      text: { color: ink, fontFamily: "system-ui, sans-serif", fontSize: 12 },
      axis: (more) => Object.assign({ axisLine: { lineStyle: { color: muted } }, axisTick: { lineStyle: { color: muted } },
        axisLabel: Object.assign({ color: ink, hideOverlap: true }, (more || {}).axisLabel), splitLine: { lineStyle: { color: grid } },
        nameTextStyle: { color: muted }, nameLocation: "middle", nameGap: 28 }, without(more || {}, "axisLabel")),
      tooltip: { backgroundColor: css("--card"), borderColor: grid, textStyle: { color: ink }, confine: true } };
  }
  function without(object, key) { const copy = Object.assign({}, object); delete copy[key]; return copy; }

  function bandOf(points, shade) {
    return { type: "custom", silent: true, z: 1, clip: true, data: points, encode: { x: 0, y: [1, 2] }, tooltip: { show: false },
      renderItem: (params, api) => {
        if (params.dataIndexInside !== 0) return null;
        const upper = points.map((p) => api.coord([p[0], p[2]])), lower = points.map((p) => api.coord([p[0], p[1]])).reverse();
        return { type: "polygon", shape: { points: upper.concat(lower) }, style: { fill: shade, opacity: 0.18 } };
      } };
  }

  /* Whether a metric needs a log axis: a bad start can be a hundred times worse than the end of a curve. */
  function wide(metric) {
    const curves = data.groups.map((group) => group.curves[metric]).filter(Boolean), known = (values) => values.filter((v) => v !== null);
    const least = Math.min(...curves.map((c) => Math.min(...known(c.low)))), most = Math.max(...curves.map((c) => Math.max(...known(c.high))));
    return metric !== "accuracy" && least > 0 && most > 10 * least;
  }

  /* A log axis that ends at 1, 2 or 5 times a power of ten, and not only at powers, which would leave much of it empty. */
  function logAxis(values) {
    const least = Math.min(...values), most = Math.max(...values), first = Math.floor(Math.log10(least)), last = Math.ceil(Math.log10(most));
    const all = [];
    for (let power = first; power <= last; power++) for (const k of [1, 2, 5]) all.push(Number(`${k}e${power}`));
    const inside = all.slice(all.findLastIndex((v) => v <= least), all.findIndex((v) => v >= most) + 1);
    const few = inside.length <= 7 ? inside : inside.filter((v) => String(v.toExponential())[0] === "1");
    return { type: "log", min: inside[0], max: inside.at(-1), ticks: { customValues: few } };
  }

  function curveOption(metric) {
    const style = look(), series = [];
    data.groups.forEach((group, i) => {
      const curve = group.curves[metric];
      if (!curve) return;
      const keep = curve.mean.map((v, k) => k).filter((k) => curve.mean[k] !== null);
      const x = curve.x[axis], type = ["solid", "dashed", "dotted"][Math.floor(i / COLOURS.length) % 3];
      if (group.seeds.length > 1 || curve.each > 1) series.push(Object.assign(bandOf(keep.map((k) => [x[k], curve.low[k], curve.high[k]]), colour(i)), { name: group.label }));
      series.push({ type: "line", name: group.label, data: keep.map((k) => [x[k], curve.mean[k]]), showSymbol: keep.length <= 12, symbolSize: 6,
        lineStyle: { color: colour(i), width: 2, type }, itemStyle: { color: colour(i) }, z: 3 });
    });
    const scale = wide(metric) ? logAxis(series.flatMap((one) => one.data.flatMap((p) => p.slice(1)))) : { type: "value", scale: true, splitNumber: 4, ticks: {} };
    return Object.assign({}, still, { textStyle: style.text,
      grid: { left: 8, right: 18, top: 14, bottom: 32, containLabel: true },
      tooltip: Object.assign({ trigger: "axis", valueFormatter: (v) => number(v), axisPointer: { label: { formatter: (p) => format(axis, p.value) } } }, style.tooltip),
      xAxis: style.axis({ type: "value", name: AXES[axis], min: axis === "round" ? 0 : undefined, splitNumber: 4, axisLabel: { formatter: (v) => format(axis, v) }, splitLine: { show: false } }),
      yAxis: style.axis(Object.assign({}, without(scale, "ticks"), { axisTick: Object.assign({ lineStyle: { color: style.muted } }, scale.ticks),
        axisLabel: Object.assign({ formatter: (v) => number(v, 3) }, scale.ticks) })), series });
  }

  function reliabilityOption(group, i) {
    const style = look(), view = group.reliability, filled = view.bins.filter((b) => b.count > 0);
    const point = (b, key) => ({ value: [(b.low + b.high) / 2, key === "share" ? 100 * b.count / view.rows : b.accuracy, b.confidence, b.count], itemStyle: { opacity: b.few ? 0.25 : 0.9, color: colour(i) } });
    const width = filled.length ? filled[0].high - filled[0].low : 0.1;
    const bars = (index, key) => ({ type: "custom", xAxisIndex: index, yAxisIndex: index, data: filled.map((b) => point(b, key)), encode: { x: 0, y: 1 }, clip: true,
      renderItem: (params, api) => {
        const b = filled[params.dataIndexInside], top = api.coord([b.low, api.value(1)]), foot = api.coord([b.high, 0]);
        return { type: "rect", shape: { x: top[0] + 1, y: top[1], width: foot[0] - top[0] - 2, height: foot[1] - top[1] },
          style: { fill: colour(i), opacity: (b.few ? 0.3 : 1) * (key === "share" ? 0.9 : 0.35) } };
      } });
    return Object.assign({}, still, { textStyle: style.text,
      grid: [{ left: 52, right: 14, top: 12, height: "56%", outerBoundsMode: "none" }, { left: 52, right: 14, bottom: 44, height: "18%", outerBoundsMode: "none" }],
      tooltip: Object.assign({ trigger: "item", formatter: (p) => {
        const b = filled[p.dataIndex];
        return !b ? "" : `confidence ${number(b.low, 2)} to ${number(b.high, 2)}<br>accuracy ${number(b.accuracy, 3)}, mean confidence ${number(b.confidence, 3)}<br>${b.count.toLocaleString("en")} rows${b.few ? " (few)" : ""}`;
      } }, style.tooltip),
      xAxis: [style.axis({ type: "value", min: 0, max: 1, interval: 0.2, axisLabel: { show: false }, splitLine: { show: false } }),
        style.axis({ gridIndex: 1, type: "value", min: 0, max: 1, interval: 0.2, name: "Confidence", splitLine: { show: false } })],
      yAxis: [style.axis({ type: "value", min: 0, max: 1, interval: 0.2, name: "Accuracy", nameGap: 34 }),
        style.axis({ gridIndex: 1, type: "value", min: 0, splitNumber: 1, name: "% rows", nameGap: 34 })],
      series: [bars(0, "accuracy"), { type: "line", silent: true, symbol: "none", data: [[0, 0], [1, 1]], lineStyle: { color: style.muted, type: "dashed", width: 1 } },
        { type: "line", data: filled.map((b) => ({ value: [b.confidence, b.accuracy], symbolSize: b.few ? 5 : 8, itemStyle: { color: b.few ? style.card : colour(i), borderColor: colour(i), borderWidth: 1.5, opacity: b.few ? 0.5 : 1 } })), symbol: "circle", lineStyle: { width: 0 }, z: 4 },
        bars(1, "share")] });
  }

  /* The least of 1, 2, 5, 10, 20, 50, ... that is at least a number. */
  function niceStep(least) {
    const ten = Math.pow(10, Math.floor(Math.log10(Math.max(least, 1))));
    return [1, 2, 5, 10].map((k) => k * ten).find((step) => step >= least) || 10 * ten;
  }

  const heatHeight = (view) => Math.min(760, Math.max(200, view.clients.length * (view.clients.length > 60 ? 6 : 14) + 90));

  /* The cells as one picture. A series of type heatmap would paint twelve thousand of them in slices, and never end on a busy machine. */
  function painted(source, most, shades, width, height) {
    const small = document.createElement("canvas"), large = document.createElement("canvas"), scale = devicePixelRatio || 1;
    [small.width, small.height, large.width, large.height] = [source[0].length, source.length, Math.ceil(scale * width), Math.ceil(scale * height)];
    const ramp = Array.from({ length: 256 }, (_, k) => window.echarts.color.parse(window.echarts.color.lerp(k / 255, shades)));
    const pixels = small.getContext("2d").createImageData(small.width, small.height);
    source.forEach((row, r) => row.forEach((value, c) => {
      if (value !== null) pixels.data.set([...ramp[Math.round(255 * value / most)].slice(0, 3), 255], 4 * (r * small.width + c));
    }));
    small.getContext("2d").putImageData(pixels, 0, 0);
    const to = large.getContext("2d");
    to.imageSmoothingEnabled = false;
    to.drawImage(small, 0, 0, large.width, large.height);
    return large;
  }
  /* The column and the row of the heat map under the mouse. */
  function cellAt(node) { return window.echarts.getInstanceByDom(node).convertFromPixel({ gridIndex: 0 }, node.mouse); }

  function heatOption(view, node) {
    const style = look(), probability = colouring === "probability" && view.probability !== null;
    const source = (probability ? view.probability : view.picks).map((row) => row.map((value) => probability || value ? value : null)), dots = [];
    const most = source.reduce((a, row) => row.reduce((b, value) => Math.max(b, value || 0), a), 0);
    const shades = dark() ? ["#1f2a36", "#1d5c8a", "#3ea4d8", "#f2f6c3"] : ["#eef3f8", "#9cc7e4", "#2b7fb8", "#08306b"];
    if (probability && view.each === 1) view.picks.forEach((row, r) => row.forEach((value, c) => { if (value) dots.push([c, r, value]); }));
    const names = view.rounds.map(([a, b]) => a === b ? String(a) : `${a}–${b}`);
    const room = Math.max(3, Math.floor((root.clientWidth - 160) / 48)), every = niceStep(view.rounds.length / room);
    const tall = (heatHeight(view) - 90) / view.clients.length, everyClient = niceStep(15 / tall);
    const labelled = (index) => view.each > 1 ? index % every === 0 : view.rounds[index][0] % every === 0 || (index === 0 && every <= 5);
    return Object.assign({}, still, { textStyle: style.text,
      grid: { left: 8, right: 14, top: 40, bottom: 32, containLabel: true },
      tooltip: Object.assign({ formatter: () => {
        const [c, r] = cellAt(node);
        if (!view.picks[r] || view.picks[r][c] === undefined) return "";
        const law = view.probability === null ? "" : `<br>probability ${number(view.probability[r][c], 3)}`;
        return `${escaped(view.clients[r])}, round${view.each > 1 ? "s" : ""} ${names[c]}${law}<br>picked ${view.picks[r][c]} time${view.picks[r][c] === 1 ? "" : "s"}`;
      } }, style.tooltip),
      xAxis: style.axis({ type: "category", data: view.rounds.map(([a]) => String(a)), name: "Round", splitLine: { show: false },
        axisTick: { alignWithLabel: true, interval: labelled, lineStyle: { color: style.muted } }, axisLabel: { interval: labelled, hideOverlap: true } }),
      yAxis: style.axis({ type: "category", data: view.clients, inverse: true, splitLine: { show: false }, axisLabel: { fontSize: 11, width: 110, overflow: "truncate", interval: (index) => index % everyClient === 0 } }),
      visualMap: { seriesIndex: 0, min: 0, max: most || 1, calculable: false, hoverLink: false, orient: "horizontal", right: 8, top: 0, itemHeight: 90, itemWidth: 10, precision: probability ? 3 : 0,
        textStyle: { color: style.ink }, text: [number(most, 3), `${probability ? "probability" : "picks"} 0`],
        inRange: { color: shades } },
      series: [{ type: "custom", data: [[0, 0, 0]], clip: true, emphasis: { disabled: true },
        renderItem: ({ coordSys: { x, y, width, height } }) => ({ type: "image", style: { image: painted(source, most || 1, shades, width, height), x, y, width, height } }) },
        { type: "scatter", data: dots, symbolSize: 6, itemStyle: { color: "#d55e00", borderColor: style.card, borderWidth: 1 }, silent: true }] });
  }

  function shareOption(view, i) {
    const style = look(), several = view.seeds > 1, turned = view.clients.length > Math.min(8, root.clientWidth / 110);
    const every = niceStep(view.clients.length * (turned ? 20 : 1) / Math.max(root.clientWidth - 150, 100));
    return Object.assign({}, still, { textStyle: style.text,
      grid: { left: 8, right: 66, top: 14, bottom: 10, outerBoundsMode: "same", outerBoundsContain: "all" },
      tooltip: Object.assign({ trigger: "axis", axisPointer: { type: "shadow" }, formatter: (ps) => {
        const k = ps[0].dataIndex;
        return `${escaped(view.clients[k])}<br>trained ${number(view.mean[k])} times${several ? ` (${view.low[k]} to ${view.high[k]} over seeds)` : ""}<br>fair share ${number(view.fair, 3)}`;
      } }, style.tooltip),
      xAxis: style.axis({ type: "category", data: view.clients, splitLine: { show: false }, axisTick: { show: false }, axisLabel: { rotate: turned ? 45 : 0, interval: (index) => index % every === 0, fontSize: 11, width: 90, overflow: "truncate" } }),
      yAxis: style.axis({ type: "value", name: "Times trained", nameGap: 34, minInterval: 1, splitNumber: 4 }),
      series: [{ type: "bar", data: view.mean, itemStyle: { color: colour(i) }, barMaxWidth: 26,
        markLine: { silent: true, symbol: "none", data: [{ yAxis: view.fair }], lineStyle: { color: style.ink, type: "dashed" }, label: { formatter: "fair share", color: style.ink, position: "end" } } },
        several ? { type: "custom", silent: true, z: 5, data: view.low.map((low, k) => [k, low, view.high[k]]), encode: { x: 0, y: [1, 2] },
          renderItem: (params, api) => { const a = api.coord([api.value(0), api.value(1)]), b = api.coord([api.value(0), api.value(2)]);
            return { type: "line", shape: { x1: a[0], y1: a[1], x2: b[0], y2: b[1] }, style: { stroke: style.ink, lineWidth: 1.5 } }; } } : null].filter(Boolean) });
  }

  /* Points with intervals, one line a name. series: [{label, mid, low, high}] */
  function rangeOption(names, series, title, zero, most) {
    const style = look(), gap = series.length > 1 ? 8 : 0, limit = root.clientWidth < 600 ? 110 : 230;
    const room = Math.min(limit, 14 + 6.4 * Math.max(...names.map((name) => name.length)));
    return Object.assign({}, still, { textStyle: style.text,
      legend: series.length > 1 ? { top: 0, left: 0, data: series.map((s) => s.label), textStyle: { color: style.ink } } : undefined,
      grid: { left: room + 12, right: 22, top: series.length > 1 ? 78 : 48, bottom: 10 },
      tooltip: Object.assign({ trigger: "item", formatter: (p) => {
        const s = series.find((one) => one.label === p.seriesName), k = p.dataIndex;
        const ends = s.low ? `<br>${number(s.low[k])} to ${number(s.high[k])}` : "";
        return `${escaped(names[k])}${s.label ? ", " + escaped(s.label) : ""}<br>${number(s.mid[k])}${ends}${s.more ? "<br>" + escaped(s.more[k]) : ""}`;
      } }, style.tooltip),
      xAxis: style.axis({ type: "value", position: "top", scale: true, boundaryGap: ["4%", "4%"], name: title, splitNumber: 4, axisLabel: { formatter: (v) => number(v, 4) },
        max: most === undefined ? null : (v) => v.max + 0.3 * (v.max - v.min) >= most ? most : null }),
      yAxis: style.axis({ type: "category", data: names, inverse: true, splitLine: { show: false }, axisTick: { show: false }, axisLabel: { interval: 0, hideOverlap: false, fontSize: 11, width: room, overflow: "truncate" } }),
      series: series.map((s, i) => ({ type: "custom", name: s.label, clip: most === undefined, itemStyle: { color: s.colour || colour(i) },
        data: s.mid.map((m, k) => [s.low ? s.low[k] : m, k, s.high ? s.high[k] : m, m]), encode: { x: [0, 2, 3], y: 1 },
        renderItem: (params, api) => {
          if (s.mid[params.dataIndexInside] === null) return null;
          const shift = (i - (series.length - 1) / 2) * gap, a = api.coord([api.value(0), api.value(1)]), b = api.coord([api.value(2), api.value(1)]), m = api.coord([api.value(3), api.value(1)]);
          const paint = s.colour || colour(i);
          return { type: "group", children: [
            { type: "line", shape: { x1: a[0], y1: a[1] + shift, x2: b[0], y2: b[1] + shift }, style: { stroke: paint, lineWidth: 2 } },
            { type: i ? "rect" : "circle", shape: i ? { x: m[0] - 3.5, y: m[1] + shift - 3.5, width: 7, height: 7 } : { cx: m[0], cy: m[1] + shift, r: 4 }, style: { fill: paint } }] };
        },
        markLine: zero && i === 0 ? { silent: true, symbol: "none", label: { show: false }, data: [{ xAxis: 0 }], lineStyle: { color: style.muted, type: "dashed" } } : undefined })) });
  }

  function lineOption(x, y, xName, yName) {
    const style = look();
    return Object.assign({}, still, { textStyle: style.text, grid: { left: 8, right: 18, top: 28, bottom: 32, containLabel: true },
      tooltip: Object.assign({ trigger: "axis", valueFormatter: (v) => number(v) }, style.tooltip),
      xAxis: style.axis({ type: "value", name: xName, min: 0, splitLine: { show: false } }), yAxis: style.axis({ type: "value", min: 0, name: yName, nameLocation: "end", nameGap: 8, nameTextStyle: { color: style.muted, align: "left" }, splitNumber: 4, axisLabel: { formatter: (v) => number(v, 3) } }),
      series: [{ type: "line", data: x.map((v, k) => [v, y[k]]), showSymbol: x.length <= 12, lineStyle: { color: colour(0), width: 2 }, itemStyle: { color: colour(0) } }] });
  }

  function cloudOption(view, index) {
    const style = look(), all = view.frames.flatMap(([, points]) => points);
    const end = (k) => { const values = all.map((p) => p[k]), low = Math.min(...values), high = Math.max(...values), pad = 0.06 * (high - low) || 1; return { min: low - pad, max: high + pad }; };
    const cloud = (which, paint, opacity, size) => ({ type: "scatter", name: `round ${view.frames[which][0]}`, data: view.frames[which][1], symbolSize: size, itemStyle: { color: paint, opacity } });
    const plain = { axisLine: { onZero: false, lineStyle: { color: style.muted } }, axisLabel: { formatter: (v) => number(v, 2), showMinLabel: false, showMaxLabel: false } };
    return Object.assign({}, still, { textStyle: style.text, grid: { left: 8, right: 18, top: 28, bottom: 8, outerBoundsMode: "same", outerBoundsContain: "all" },
      legend: { top: 0, left: 0, textStyle: { color: style.ink } },
      tooltip: Object.assign({ formatter: (p) => `particle ${p.dataIndex + 1}, ${p.seriesName}` }, style.tooltip),
      xAxis: style.axis(Object.assign({ type: "value", name: "First component", splitNumber: 4 }, end(0), plain)), yAxis: style.axis(Object.assign({ type: "value", name: "Second component", nameGap: 36, splitNumber: 4 }, end(1), plain)),
      series: [index > 0 ? cloud(0, style.muted, 0.45, 6) : null, cloud(index, colour(0), 0.9, 9)].filter(Boolean) });
  }

  function incidentOption(view) {
    const style = look();
    const narrow = root.clientWidth < 600, room = Math.min(narrow ? 92 : 200, 10 + 7 * Math.max(...view.kinds.map((kind) => kind.length)));
    return Object.assign({}, still, { textStyle: style.text, grid: { left: room + 12, right: 18, top: 12, bottom: 44, outerBoundsMode: "none" },
      tooltip: Object.assign({ formatter: (p) => `round ${p.value[0]}: ${escaped(view.kinds[p.value[1]])}${p.value[2] ? "<br>" + escaped(p.value[2]) : ""}` }, style.tooltip),
      xAxis: style.axis({ type: "value", name: "Round", min: view.marks.some((mark) => mark[0] === 0) ? -0.02 * Math.max(view.rounds, 5) : 0, max: 1.02 * Math.max(view.rounds, 1), minInterval: 1,
        axisLabel: { showMinLabel: false, showMaxLabel: false, formatter: (v) => number(v) } }),
      yAxis: style.axis({ type: "category", data: view.kinds, axisLabel: { width: room, overflow: "break", lineHeight: 13 }, splitLine: { show: true, lineStyle: { color: style.grid } } }),
      series: [{ type: "scatter", data: view.marks, symbolSize: 10, itemStyle: { color: "#d55e00", opacity: 0.75 } }] });
  }
  const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

  window.FedsteinViews = { h, number, format, bytes, colour, NAMES, LONG, AXES, draw, drawAll, redraw, escaped, wide, heatHeight,
    options: { curveOption, reliabilityOption, heatOption, shareOption, rangeOption, lineOption, cloudOption, incidentOption },
    state: { get root() { return root; }, set root(v) { root = v; }, get data() { return data; }, set data(v) { data = v; }, get axis() { return axis; }, set axis(v) { axis = v; },
      get colouring() { return colouring; }, set colouring(v) { colouring = v; }, get chosen() { return chosen; }, set chosen(v) { chosen = v; }, get frame() { return frame; }, set frame(v) { frame = v; } } };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", drawAll);
})();
