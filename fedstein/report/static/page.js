/* The live page: the list of runs, what is chosen, and the stream of news. The views are drawn by sections.js. */
(function () {
  "use strict";
  const { h, number, NAMES } = window.FedsteinViews, $ = (id) => document.getElementById(id);
  const runs = new Map(), details = new Map(), items = new Map(), asked = new Set();
  const measured = { updates: [], painted: null, round: null };
  let chosen = fromAddress(), picked = chosen.length > 0, views = null, busy = false, again = null, ready = false;

  function fromAddress() { return new URLSearchParams(location.hash.slice(1)).getAll("run"); }
  function toAddress() {
    const query = new URLSearchParams(chosen.map((id) => ["run", id])).toString();
    history.replaceState(null, "", location.pathname + location.search + (query ? "#" + query : ""));
  }
  function spark(entry) {
    const values = entry.spark.values.filter((v) => v !== null);
    const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    drawing.setAttribute("viewBox", "0 0 100 30");
    drawing.setAttribute("preserveAspectRatio", "none");
    drawing.setAttribute("aria-hidden", "true");
    if (values.length > 1) {
      const low = Math.min(...values), span = Math.max(...values) - low || 1, line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
      line.setAttribute("points", values.map((v, k) => `${(100 * k / (values.length - 1)).toFixed(1)},${(28 - 26 * (v - low) / span).toFixed(1)}`).join(" "));
      drawing.append(line);
    }
    return drawing;
  }
  function about(entry) {
    const last = entry.spark.last === null ? "" : `, ${(NAMES[entry.spark.metric] || entry.spark.metric || "").toLowerCase()} ${number(entry.spark.last, 4)}`;
    return `round ${entry.round}${entry.rounds ? " of " + entry.rounds : ""}${last}`;
  }
  function item(entry) {
    let found = items.get(entry.id);
    if (!found) {
      const box = h("input", { type: "checkbox", onchange: () => choose(entry.id, box.checked) });
      found = { box, badge: h("span", {}), name: h("span", { class: "name", text: entry.id }), spark: h("span", { class: "spark" }), about: h("span", { class: "about" }) };
      found.node = h("li", {}, h("label", {}, box, found.name, found.badge, found.about, found.spark));
      items.set(entry.id, found);
    }
    found.badge.className = "badge " + entry.state;
    found.badge.textContent = entry.state;
    found.about.replaceChildren(about(entry), h("br"), [entry.about, entry.seed === null ? "" : `seed ${entry.seed}`].filter(Boolean).join(", "));
    found.spark.replaceChildren(spark(entry));
    return found;
  }
  function shownRuns() {
    const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean), state = $("state").value;
    return [...runs.values()].filter((entry) => (!state || entry.state === state) && words.every((word) => `${entry.id} ${entry.about} ${entry.state} seed ${entry.seed}`.toLowerCase().includes(word)));
  }
  function list() {
    const shown = shownRuns().sort((a, b) => (b.state === "running") - (a.state === "running") || a.id.localeCompare(b.id, "en", { numeric: true }));
    const nodes = shown.map((entry) => {
      const found = items.get(entry.id) || item(entry);
      found.box.checked = chosen.includes(entry.id);
      found.node.classList.toggle("chosen", found.box.checked);
      return found.node;
    });
    const now = [...$("runs").children];
    if (now.length !== nodes.length || now.some((node, k) => node !== nodes[k])) $("runs").replaceChildren(...nodes);
    const text = !ready ? "Reading run folders …" : runs.size === 0 ? "No runs yet." : shown.length === runs.size ? `${runs.size} run${runs.size === 1 ? "" : "s"}` : `${shown.length} of ${runs.size} runs`;
    if ($("count").textContent !== text) $("count").textContent = text;
    $("all").disabled = !shown.length;
  }
  function choose(id, on) {
    picked = true;
    chosen = on ? [...chosen, id] : chosen.filter((other) => other !== id);
    toAddress(); list(); refresh();
  }
  function heading() {
    const known = chosen.filter((id) => runs.has(id));
    $("heading").textContent = !known.length ? (runs.size ? "No run is chosen" : ready ? "No runs yet" : "Loading …") : known.length === 1 ? known[0] : `${known.length} runs compared`;
    document.title = `${known.length === 1 ? known[0] : known.length ? known.length + " runs" : "runs"} – Fedstein`;
    $("lead").textContent = !known.length ? (runs.size ? "Choose runs in the list to see and compare them." : ready ? "Start one, for instance with: fedstein run. It appears here by itself." : "") :
      known.length === 1 ? (() => { const entry = runs.get(known[0]); const words = [entry.about, entry.seed === null ? "" : `seed ${entry.seed}`].filter(Boolean).join(", "); return `${words ? words + ": " : ""}${entry.state}, ${about(entry)}`; })() : "";
    return known;
  }
  function say(text) { $("error").hidden = !text; if ($("error").textContent !== text) $("error").textContent = text; }

  async function refresh(since) {
    if (busy) { again = again === null || again === undefined ? (since === undefined ? performance.now() : since) : again; return; }
    const began = since === undefined ? performance.now() : since, known = heading();
    if (!known.length) { views = null; if ($("views").childElementCount) { $("views").replaceChildren(); window.FedsteinViews.state.root = null; } return; }
    busy = true;
    try {
      const answer = await fetch("api/views?" + new URLSearchParams(known.map((id) => ["run", id])));
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      views = await answer.json();
      say("");
      paint(began);
    } catch (error) {
      say(`The views could not be loaded: ${error.message}. They are asked for again when there is news.`);
    } finally {
      busy = false;
      if (again !== null) { const next = again; again = null; refresh(next); }
    }
  }
  function paint(began) {
    for (const run of views.runs) {
      const kept = details.get(run.id);
      if (kept) { run.details = kept.found; if (kept.state !== run.state || (run.state === "running" && performance.now() - kept.at > 5000)) ask(run.id); }
    }
    window.Fedstein.render($("views"), views, ask);
    requestAnimationFrame(() => setTimeout(() => {
      measured.updates.push(performance.now() - began);
      if (measured.updates.length > 200) measured.updates.shift();
      if (measured.painted === null) measured.painted = performance.now();
      measured.round = Math.max(...views.runs.map((run) => run.round));
    }));
  }
  async function ask(id) {
    if (asked.has(id)) return;
    asked.add(id);
    try {
      const answer = await fetch("api/details?" + new URLSearchParams({ run: id })), found = await answer.json();
      const state = runs.has(id) ? runs.get(id).state : "";
      const failed = (text) => Object.fromEntries(["forest", "particles", "rows", "clients"].map((name) => [name, { missing: text }]));
      details.set(id, { found: answer.ok ? found : failed(found.error || "The server could not compute this."), state, at: performance.now() });
    } catch (error) {
      setTimeout(() => { if (views) paint(performance.now()); }, 3000);
    } finally {
      asked.delete(id);
    }
    if (views && views.runs.some((run) => run.id === id)) paint(performance.now());
  }
  function news(entry) {
    const began = performance.now();
    ready = entry.ready;
    for (const run of entry.runs) { runs.set(run.id, run); item(run); }
    for (const id of [...runs.keys()]) if (!entry.names.includes(id)) { runs.delete(id); items.delete(id); details.delete(id); }
    if (!picked && runs.size) {
      const running = [...runs.values()].filter((run) => run.state === "running");
      chosen = [(running[0] || [...runs.values()].sort((a, b) => a.id.localeCompare(b.id, "en", { numeric: true }))[0]).id];
      picked = true;
    }
    list();
    if (!views || entry.runs.some((run) => chosen.includes(run.id))) refresh(began);
    else heading();
  }
  function connect() {
    const stream = new EventSource("api/events");
    const tell = (name, text) => { $("connection").className = name; if ($("connection").textContent !== text) $("connection").textContent = text; };
    stream.onopen = () => tell("on", "Live");
    stream.onmessage = (message) => news(JSON.parse(message.data));
    stream.onerror = () => {
      tell("off", "The server does not answer; trying again …");
      if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
    };
  }
  $("filter").addEventListener("input", list);
  $("state").addEventListener("change", list);
  $("all").addEventListener("click", () => { picked = true; chosen = shownRuns().map((entry) => entry.id); toAddress(); list(); refresh(); });
  $("none").addEventListener("click", () => { picked = true; chosen = []; toAddress(); list(); refresh(); });
  addEventListener("hashchange", () => { chosen = fromAddress(); picked = true; list(); refresh(); });
  window.FedsteinPage = { measured };
  list();
  connect();
})();
