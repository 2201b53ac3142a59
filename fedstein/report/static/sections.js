/* The sections of the page: which view stands where, with captions, numbers as tables, and what is missing. */
(function () {
  "use strict";
  const F = window.FedsteinViews, { h, number, format, bytes, draw, NAMES, LONG, AXES } = F, S = F.state, O = F.options;
  const sections = new Map();
  const TALL = 512;  // pixels of a panel from which it scrolls: 32rem of .panel.tall
  let askDetails = null;

  function table(headings, rows) {
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table" }, h("table", {},
      h("thead", {}, h("tr", {}, ...headings.map((text, i) => h("th", { scope: "col", class: i ? "n" : null, text })))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell, i) => h(i ? "td" : "th", { scope: i ? null : "row", class: i ? "n" : null, text: cell })))))));
  }
  const breakable = (name) => name.replace(/([_.:/-])/g, "$1\u200b");  // long names may break after these
  function missing(text) { return h("p", { class: "missing", text }); }

  /* A card that is made once and filled again and again. */
  function card(id, title, after) {
    if (!sections.has(id)) {
      const heading = h("h3", { id: id + "-title", text: title });
      const controls = h("div", { class: "controls" }), body = h("div", { class: "views-body" }), caption = h("figcaption", { class: "small" });
      const numbers = h("details", { class: "numbers" }, h("summary", { text: "Numbers", "aria-label": `Numbers: ${title}` }));
      const node = h("figure", { class: "card view", id, "aria-labelledby": id + "-title" }, heading, controls, body, caption, numbers);
      numbers.addEventListener("toggle", () => fill(sections.get(id)));
      sections.set(id, { node, heading, controls, body, caption, numbers, charts: new Map(), table: null });
      S.root.append(node);
    }
    const entry = sections.get(id);
    entry.heading.textContent = title;
    return entry;
  }
  function fill(entry) {
    if (!entry.numbers.open || !entry.table) return;
    while (entry.numbers.children.length > 1) entry.numbers.lastChild.remove();
    entry.numbers.append(entry.table());
  }
  function setTable(entry, make) {
    entry.table = make;
    entry.numbers.hidden = !make;
    fill(entry);
  }
  function chartIn(entry, key, height, title) {
    let found = entry.charts.get(key);
    if (!found) {
      const name = h("h4", {}), node = h("div", { class: "chart" });
      found = { box: h("div", { class: "panel" }, name, node), name, node };
      entry.charts.set(key, found);
      entry.body.append(found.box);
    }
    found.name.textContent = title || "";
    found.name.hidden = !title;
    found.node.style.height = height + "px";
    found.used = true;
    return found.node;
  }
  function show(entry, view, drawIt) {
    entry.charts.forEach((found) => { found.used = false; });
    entry.body.querySelectorAll(":scope > .missing, :scope > .loading, :scope > .free").forEach((node) => node.remove());
    entry.caption.textContent = "";
    entry.controls.hidden = false;
    if (view === undefined) { entry.body.append(h("p", { class: "loading", role: "status", text: "Loading …" })); setTable(entry, null); entry.controls.hidden = true; }
    else if (view === null || view.missing) { entry.body.append(missing((view && view.missing) || "There is nothing to show yet.")); setTable(entry, null); entry.controls.hidden = true; }
    else drawIt();
    entry.charts.forEach((found, key) => {
      if (found.used) return;
      const instance = window.echarts.getInstanceByDom(found.node);
      if (instance) instance.dispose();
      found.box.remove();
      entry.charts.delete(key);
    });
  }
  function free(entry, ...nodes) { for (const node of nodes) { node.classList.add("free"); entry.body.append(node); } }
  function radios(entry, name, legend, options, current, pick) {
    if (entry.controls.childElementCount) {
      entry.controls.querySelectorAll("input").forEach((input) => { input.checked = input.value === current; });
      return;
    }
    const set = h("fieldset", { class: "radios" }, h("legend", { text: legend }));
    for (const [value, text] of Object.entries(options)) {
      const input = h("input", { type: "radio", name, value, onchange: () => pick(value) });
      input.checked = value === current;
      set.append(h("label", {}, input, h("span", { text })));
    }
    entry.controls.append(set);
  }
  const several = () => S.data.groups.some((group) => group.seeds.length > 1);

  /* ---- what every run has ---- */
  function headline() {
    const entry = card("view-headline", "Headline numbers");
    entry.body.className = "views-body headline";
    show(entry, S.data.groups.length ? {} : { missing: "No rounds yet." }, () => {
      S.data.groups.forEach((group, i) => {
        const tiles = group.headline.map((item) => {
          const tile = h("div", { class: "tile" }, h("dt", { text: NAMES[item.name] || item.name }), h("dd", { text: format(item.name, item.value) }));
          if (item.change !== null && item.change !== undefined) {
            const places = (number(item.value).split(".")[1] || "").length, change = Math.abs(item.change).toFixed(places);
            const better = Number(change) === 0 ? "same" : item.larger_is_better === null ? "" : (item.change > 0) === item.larger_is_better ? "better" : "worse";
            tile.append(h("dd", { class: "change " + better, text: `${Number(change) === 0 ? "±" : item.change > 0 ? "+" : "−"}${change} in ${item.since} round${item.since === 1 ? "" : "s"}${better && better !== "same" ? ", " + better : ""}` }));
          } else if (item.name === "bytes") tile.append(h("dd", { class: "change", text: `${bytes(item.down)} down, ${bytes(item.up)} up` }));
          return tile;
        });
        const name = h("h4", {}, S.data.groups.length > 1 ? h("span", { class: "swatch", style: `background:${F.colour(i)}`, "aria-hidden": "true" }) : null, group.label + (group.seeds.length > 1 ? `, mean of ${group.seeds.length} seeds` : group.seeds[0] === null ? "" : `, seed ${group.seeds[0]}`));
        free(entry, h("div", { class: "group" }, name, h("dl", { class: "tiles" }, ...tiles)));
      });
      setTable(entry, null);
    });
  }

  function legend() {
    return h("ul", { class: "legend", "aria-label": "Groups" }, ...S.data.groups.map((group, i) => h("li", {}, h("span", { class: "swatch", style: `background:${F.colour(i)}`, "aria-hidden": "true" }), `${group.label} (${group.seeds.length} seed${group.seeds.length === 1 ? "" : "s"})`)));
  }

  function curves() {
    const entry = card("view-curves", "Learning curves");
    const metrics = S.data.metrics.filter((name) => !["brier", "mce"].includes(name)).slice(0, 4);
    radios(entry, "axis", "Against", { round: "round", bytes: "bytes", gradients: "row-gradients", seconds: "seconds" }, S.axis, (value) => { S.axis = value; curves(); });
    entry.body.className = "views-body multiples";
    show(entry, metrics.length ? {} : { missing: "No round has been evaluated yet." }, () => {
      if (S.data.groups.length > 1) { const old = entry.node.querySelector(".legend"); if (old) old.remove(); entry.controls.after(legend()); }
      else { const old = entry.node.querySelector(".legend"); if (old) old.remove(); }
      for (const metric of metrics) {
        const last = S.data.groups.map((group) => group.curves[metric] ? `${group.label}: ${number(group.curves[metric].mean.at(-1))}` : "").filter(Boolean).join("; ");
        draw(chartIn(entry, metric, 250, (LONG[metric] || metric) + (F.wide(metric) ? ", log scale" : "")), `${LONG[metric] || metric} by ${AXES[S.axis].toLowerCase()}. Last: ${last}.`, () => O.curveOption(metric));
      }
      const each = Math.max(1, ...S.data.groups.flatMap((group) => Object.values(group.curves).map((curve) => curve.each)));
      const scored = S.data.scored ? `Scores are on ${S.data.scored}. ` : "";
      entry.caption.textContent = scored + (several() ? "Lines are means over seeds; bands run from the lowest to the highest seed. " : "") +
        (each > 1 ? `Each point is the mean of ${each} rounds, and the band is their range.` : "");
      setTable(entry, () => table(["Group", "Metric", "First", "Last", "Lowest", "Highest"], S.data.groups.flatMap((group) => Object.entries(group.curves).map(([name, curve]) =>
        [group.label, NAMES[name] || name, number(curve.mean[0]), number(curve.mean.at(-1)), number(Math.min(...curve.low.filter((v) => v !== null))), number(Math.max(...curve.high.filter((v) => v !== null)))]))));
    });
  }

  function reliability() {
    const entry = card("view-reliability", "Calibration: is a confidence of 80% right in 80% of the rows?");
    entry.body.className = "views-body multiples";
    const shown = S.data.groups.map((group, i) => [group, i]).filter(([group]) => !group.reliability.missing);
    show(entry, shown.length ? {} : { missing: (S.data.groups[0] || { reliability: { missing: "No rounds yet." } }).reliability.missing }, () => {
      for (const [group, i] of shown) {
        const view = group.reliability;
        draw(chartIn(entry, group.label, 330, `${group.label}: ECE ${number(view.ece, 3)}`), `Reliability of ${group.label}: expected calibration error ${number(view.ece, 3)} over ${view.rows} rows.`, () => O.reliabilityOption(S.data.groups[i], i));
      }
      entry.caption.textContent = "Accuracy in each bin of confidence, and below it the share of rows in the bin. Points under the dashed line are overconfident. Bins with few rows (under 1%, or fewer than 20) are faded.";
      setTable(entry, () => table(["Group", "Confidence", "Accuracy", "Mean confidence", "Rows"], shown.flatMap(([group]) => group.reliability.bins.filter((b) => b.count).map((b) =>
        [group.label, `${number(b.low, 2)} to ${number(b.high, 2)}`, number(b.accuracy, 3), number(b.confidence, 3), b.count.toLocaleString("en") + (b.few ? " (few)" : "")]))));
    });
  }

  function shares() {
    const entry = card("view-shares", "Who trained, against a fair share");
    entry.body.className = "views-body";
    const shown = S.data.groups.map((group, i) => [group, i]).filter(([group]) => !group.shares.missing);
    show(entry, shown.length ? {} : { missing: "No client has trained yet." }, () => {
      for (const [group, i] of shown) {
        draw(chartIn(entry, group.label, 240, S.data.groups.length > 1 ? group.label : ""), `Times that each of ${group.shares.clients.length} clients trained in ${group.label}; a fair share is ${number(group.shares.fair, 3)}.`, () => O.shareOption(S.data.groups[i].shares, i));
      }
      entry.caption.textContent = "The number of rounds in which each client was selected to train. The dashed line is what each would have if all had the same share." + (several() ? " Bars are means over seeds, thin lines the range." : "");
      setTable(entry, () => table(["Client", "Group", "Times trained", "Fair share"], shown.flatMap(([group]) => group.shares.clients.map((name, k) => [name, group.label, number(group.shares.mean[k]), number(group.shares.fair, 3)]))));
    });
  }

  /* ---- one run at a time ---- */
  function chooser() {
    let bar = document.getElementById("view-run");
    if (!bar) {
      const select = h("select", { id: "view-run-select", onchange: (event) => { S.chosen = event.target.value; S.frame = null; single(); } });
      bar = h("div", { id: "view-run", class: "chooser" }, h("h2", { text: "Within one run" }), h("label", { for: "view-run-select", text: "Run" }), select);
      S.root.append(bar);
    }
    const ids = S.data.runs.map((run) => run.id), select = bar.querySelector("select");
    if (!ids.includes(S.chosen)) S.chosen = ids[0] || null;
    if ([...select.options].map((option) => option.value).join("\n") !== ids.join("\n")) {
      select.replaceChildren(...S.data.runs.map((run) => h("option", { value: run.id, text: `${run.id} (${[run.label, run.seed === null ? "" : `seed ${run.seed}`].filter(Boolean).join(", ")})` })));
    }
    select.value = S.chosen || "";
    bar.querySelector("label").hidden = select.hidden = ids.length < 2;
  }
  function run() { return S.data.runs.find((one) => one.id === S.chosen) || null; }
  function rangeCard(entry, view, key, names, series, title, zero, label, most) {
    const height = Math.max(150, names.length * (series.length > 1 ? 26 : 19) + 80);
    const node = chartIn(entry, key, height, "");
    node.parentElement.className = "panel tall";
    node.parentElement.setAttribute("tabindex", "0");
    node.parentElement.setAttribute("role", "region");
    node.parentElement.setAttribute("aria-label", label);
    draw(node, label, () => O.rangeOption(names, series, title, zero, most));
    return height > TALL ? ` The panel scrolls: it has ${names.length} lines.` : "";
  }

  function heat() {
    const entry = card("view-heat", "Who is likely to be picked, and who is");
    const view = run() && run().heat_map;
    radios(entry, "colouring", "Colour", { probability: "selection probability", picks: "picks" }, S.colouring, (value) => { S.colouring = value; heat(); });
    show(entry, view, () => {
      entry.controls.hidden = view.probability === null;
      const node = chartIn(entry, "heat", F.heatHeight(view), "");
      if (!node.mouse) {
        node.mouse = [0, 0];
        const follow = (event) => { const box = node.getBoundingClientRect(); node.mouse = [event.clientX - box.left, event.clientY - box.top]; };
        node.addEventListener("mousemove", follow, true);  // before the chart itself sees the event
      }
      draw(node, `Heat map of ${view.clients.length} clients by ${view.rounds.length} columns of rounds: selection probability and picks.`, () => O.heatOption(run().heat_map, node));
      entry.caption.textContent = [view.each > 1 ? `Each column is the mean of ${view.each} rounds.` : view.probability ? "Orange dots: picked." : "", view.probability && view.probability.some((row) => row.includes(null)) ? "Empty cells: the client was no candidate." : "", `Equal shares would be ${number(view.fair, 3)}.`, ...view.notes].filter(Boolean).join(" ");
      setTable(entry, () => table(["Client", "Mean probability", "Picks"], view.clients.map((name, r) => {
        const law = view.probability ? view.probability[r].filter((v) => v !== null) : [];
        return [name, law.length ? number(law.reduce((a, b) => a + b, 0) / law.length, 3) : "–", String(view.picks[r].reduce((a, b) => a + b, 0))];
      })));
    });
  }
  function reportsView() {
    const entry = card("view-reports", "What clients report"), view = run() && run().reports;
    show(entry, view, () => {
      const more = rangeCard(entry, view, "reports", view.clients, [{ label: "", mid: view.median, low: view.low, high: view.high }], `${view.what} reported`, false, `Reports of ${view.clients.length} clients`);
      entry.caption.textContent = `Median and central 80% of each client's ${view.what} reports over the last ${view.rounds} round${view.rounds === 1 ? "" : "s"}, the greatest median first.${more}`;
      setTable(entry, () => table(["Client", "Median", "10%", "90%", "Reports"], view.clients.map((name, k) => [name, number(view.median[k]), number(view.low[k]), number(view.high[k]), String(view.count[k])])));
    });
  }
  function detail(name) {
    const found = run();
    if (!found) return null;
    if (found.details === undefined) { if (askDetails) askDetails(found.id); return undefined; }
    return found.details[name];
  }
  function clients() {
    const entry = card("view-clients", "Who is served badly");
    const found = run(), view = found && found.clients ? found.clients : detail("clients");
    show(entry, view, () => {
      entry.body.className = "views-body multiples";
      const more = view.rows.map((rows) => `${rows} rows`);
      const long = rangeCard(entry, view, "score", view.clients, [{ label: "", mid: view.score, more }], NAMES[view.metric], false, `${NAMES[view.metric]} of each client, the worst first`, view.metric === "accuracy" ? 1 : undefined);
      if (view.ece && view.ece.some((v) => v !== null)) rangeCard(entry, view, "ece", view.clients, [{ label: "", mid: view.ece, more, colour: F.colour(1) }], "ECE", false, "Calibration error of each client, in the same order");
      entry.caption.textContent = `Each client ${view.where}; the worst ${NAMES[view.metric]} first.${long}`.replace("Accuracy", "accuracy");
      setTable(entry, () => table(["Client", NAMES[view.metric], "NLL", "ECE", "Rows"], view.clients.map((name, k) => [name, number(view.score[k]), number(view.nll[k]), view.ece ? number(view.ece[k]) : "–", String(view.rows[k])])));
    });
  }
  function forest() {
    const entry = card("view-forest", "Coefficients with 90% intervals"), view = detail("forest");
    show(entry, view, () => {
      const series = view.series.map((s) => ({ label: s.label, mid: s.mean, low: s.low, high: s.high }));
      const more = rangeCard(entry, view, "forest", view.names, series, view.units === "standardised" ? "Coefficient (features are standardised)" : "Coefficient", true, `Forest plot of ${view.names.length} coefficients`);
      entry.caption.textContent = [`Posterior mean and central 90% interval: ${view.series.map((s) => s.label).join(" and ")}.${more}`, ...view.notes].join(" ");
      setTable(entry, () => table(["Coefficient", ...view.series.flatMap((s) => [s.label + ", mean", "5%", "95%"])], view.names.map((name, k) => [name, ...view.series.flatMap((s) => [number(s.mean[k]), number(s.low[k]), number(s.high[k])])])));
    });
  }
  function particles() {
    const entry = card("view-particles", "Where the particles are"), view = detail("particles");
    show(entry, view, () => {
      entry.body.className = "views-body multiples";
      const last = view.frames.length - 1;
      if (S.frame === null || S.frame > last) S.frame = last;
      draw(chartIn(entry, "spread", 280, "Spread by round"), `Spread of the particles by round, last ${number(view.spread.at(-1))}.`, () => O.lineOption(view.rounds, view.spread, "Round", "root mean variance"));
      const title = () => `Round ${view.frames[S.frame][0]}, two principal components`, node = chartIn(entry, "cloud", 280, title());
      const paint = () => draw(node, `Projection of ${view.count} particles in round ${view.frames[S.frame][0]}.`, () => O.cloudOption(view, S.frame));
      paint();
      let slider = entry.controls.querySelector("input");
      if (!slider) {
        slider = h("input", { type: "range", min: "0", id: "frame" });
        entry.controls.append(h("label", { for: "frame", text: "Round " }), slider, h("output", { for: "frame" }));
      }
      slider.max = String(last);
      slider.value = String(S.frame);
      const tell = () => { entry.controls.querySelector("output").textContent = view.frames[S.frame][0]; slider.setAttribute("aria-valuetext", "round " + view.frames[S.frame][0]); };
      slider.oninput = () => { S.frame = Number(slider.value); node.previousSibling.textContent = title(); paint(); tell(); };
      tell();
      entry.caption.textContent = `The spread is the root of the mean variance of a coordinate over ${view.count} particles. The two components have ${number(100 * view.share, 2)}% of the variance over all rounds${view.exact ? "" : " of a random projection to 16 dimensions"}. Grey: the first kept round.`;
      setTable(entry, () => table(["Round", "Spread"], view.rounds.map((round, k) => [String(round), number(view.spread[k])])));
    });
  }
  function rowsView() {
    const entry = card("view-rows", "Rows on which the particles disagree most"), view = detail("rows");
    entry.body.className = "views-body";
    show(entry, view, () => {
      free(entry, h("ol", { class: "rows" + (view.rows.some((row) => row.picture) ? " pictures" : "") }, ...view.rows.map((row) => {
        const item = h("li", {});
        if (row.picture) item.append(h("img", { src: row.picture, width: 84, height: 84, alt: `Test row ${row.row}, labelled ${row.truth}` }));
        const said = view.task === "classification" ? row.predicted.map(([name, p]) => `${name}:\u00a0${number(100 * p, 2)}%`).join(", ") : `predicted ${number(row.mean)}`;
        item.append(h("strong", { text: `Row ${row.row}: ${view.task === "classification" ? "label " : "target "}${row.truth}` }), h("span", { text: said }),
          h("span", { class: "small", text: view.task === "classification" ? `epistemic ${number(row.epistemic, 2)} of ${number(row.total, 2)} nats` : `epistemic sd ${number(row.epistemic, 3)}` }));
        if (row.features) item.append(h("span", { class: "small", text: row.features.slice(0, 4).map(([name, value, sd]) => `${breakable(name)} ${number(value)}${sd === null ? "" : ` (${sd > 0 ? "+" : "−"}${number(Math.abs(sd), 2)} sd)`}`).join("; ") }));
        return item;
      })));
      entry.caption.textContent = `The ${view.rows.length} of ${view.scanned.toLocaleString("en")} test rows${view.scanned < view.of ? ` (of ${view.of.toLocaleString("en")}, evenly spaced)` : ""} with the highest epistemic ${view.task === "classification" ? "entropy: the mutual information of label and parameter over " + view.particles + " particles, in nats" : "standard deviation over " + view.particles + " particles"}; the median row has ${number(view.median, 2)}.`;
      setTable(entry, null);
    });
  }
  function incidents() {
    const entry = card("view-incidents", "Faults and events"), view = run() && run().incidents;
    show(entry, view, () => {
      if (view.marks.length) draw(chartIn(entry, "marks", Math.max(130, 34 * view.kinds.length + 70), ""), `Faults and events by round: ${view.kinds.join(", ")}.`, () => O.incidentOption(run().incidents));
      entry.caption.textContent = view.left_off ? `${view.left_off} earlier ones are left off.` : "";
      setTable(entry, view.log.length ? () => table(["Time", "Round", "Event", "Who", "More"], view.log.map(([time, round, what, who, more]) => [time ? clock(time) : "–", String(round), what, who, more])) :
        () => table(["Round", "What", "Who"], view.marks.map(([round, kind, who]) => [String(round), view.kinds[kind], who])));
    });
  }
  const clock = (time) => new Date(1000 * time).toLocaleTimeString([], { hourCycle: "h23" });
  function nodeNow(node) { return !node.now ? "–" : node.state === "away" ? `awaited for ${node.now}` : `${node.now} since ${clock(node.now_since)}`; }
  function nodeState(node, live) {
    if (!live) return node.state === "not seen yet" ? "never seen" : node.state === "away" ? "was away" : "was connected";
    if (node.state === "left out") return `left out until round ${node.until}`;
    return node.state + (node.state === "away" && node.since ? ` since round ${node.since}` : "");
  }
  function nodes() {
    const view = run() && run().nodes, entry = card("view-nodes", "Nodes: who is there, who is asked, who is late");
    entry.node.hidden = !view;
    if (!view) return;
    show(entry, view, () => {
      const away = view.rows.filter((n) => n.state === "away").length, busy = view.rows.filter((n) => n.now).map((n) => n.name);
      const counts = ["asked", "reported", "trained", "late", "asked_again", "left_out", "rejected"];
      const box = table(["Node", "State", "Asked for", "Asked", "Reported", "Trained", "Late", "Asked again", "Left out", "Rejected"],
        view.rows.map((n) => [n.name, nodeState(n, view.live), nodeNow(n), ...counts.map((key) => String(n[key]))]));
      box.querySelectorAll("tbody tr").forEach((row, k) => { const n = view.rows[k]; row.className = !view.live ? "" : n.state === "away" || n.state === "left out" ? "trouble" : n.now ? "asked" : ""; [1, 2].forEach((i) => { row.children[i].className = "words"; }); });
      const heads = [...box.querySelectorAll("thead th")];
      box.classList.add("nodes");
      box.querySelectorAll("tbody td").forEach((cell) => cell.setAttribute("data-name", heads[cell.cellIndex].textContent));
      [1, 2].forEach((i) => { heads[i].className = "words"; });
      free(entry, h("p", { role: "status", text: !view.live ? "The server of this run is not at work; this is what it last knew." :
        `${view.rows.length - away} of ${view.rows.length} nodes are connected. ` + (busy.length ? `Waiting for ${busy.slice(0, 6).join(", ")}${busy.length > 6 ? ` and ${busy.length - 6} more` : ""}.` : "Nobody is asked at this moment.") }), box);
      entry.caption.textContent = "Asked, reported and trained count rounds. Late: no answer in time. Asked again: the same question was sent once more. Left out: not asked for some rounds after answers that could not be used (rejected).";
      setTable(entry, null);
    });
  }
  function problems() {
    let box = document.getElementById("view-problems");
    if (!box) { box = h("div", { id: "view-problems", class: "card note", role: "status" }); S.root.append(box); }
    const lines = [...S.data.notes, ...S.data.runs.flatMap((one) => one.problems.map((text) => `${one.id}: ${text}`))];
    box.hidden = !lines.length;
    const text = lines.join("\n");
    if (box.dataset.text !== text) { box.dataset.text = text; box.replaceChildren(...lines.map((line) => h("p", { text: line }))); }
  }
  function single() { chooser(); nodes(); heat(); reportsView(); clients(); forest(); particles(); rowsView(); incidents(); }

  /* Draw a dictionary of views into a node. ask: is called with the id of a run whose details are wanted. */
  function render(node, views, ask) {
    if (S.root !== node) { S.root = node; sections.clear(); node.replaceChildren(); }
    S.data = views;
    askDetails = ask || null;
    problems(); headline(); curves(); reliability(); shares(); single();
  }
  window.Fedstein = { render, drawAll: F.drawAll, number };
})();
