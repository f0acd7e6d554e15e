// ---- the page ---------------------------------------------------------------------------------------------------------
let data = null, before = [], told = null;
/// What other workers of the group say, and who they are.
let others = {workers: [], connectors: []};
/// The connector that the address names; else the worst one, which stays until another one is worse.
let worst = null;
function chosen() {
  const named = data.connectors.find(c => "#" + encodeURIComponent(c.name) === location.hash);
  if (named) return named;
  const first = [...data.connectors].sort(byLevel)[0], last = data.connectors.find(c => c.name === worst);
  const stays = last && WORST[last.level] <= WORST[first.level] && hasFailed(last) >= hasFailed(first) ? last : first;
  worst = stays?.name;
  return stays;
}
/// The icon of the tab has the colour and the shape of the worst state.
function icon(level) {
  const shape = {good: '<circle cx="8" cy="8" r="7" fill="#17744a"/>', note: '<path d="M8 1 15 15H1Z" fill="#c07b00"/>',
    bad: '<path d="M2 2 14 14M14 2 2 14" stroke="#b3261e" stroke-width="4"/>'}[level];
  const namespace = document.getElementById("curve").content.firstElementChild.namespaceURI;
  return "data:image/svg+xml," + encodeURIComponent('<svg xmlns="' + namespace + '" viewBox="0 0 16 16">' + shape + "</svg>");
}

/// Records a second by topic over the last few answers.
function topicRates() {
  const rates = new Map(), first = before[0];
  const seconds = first ? (new Date(data.now) - new Date(first.now)) / 1000 : 0;
  if (seconds <= 0) return rates;
  const old = new Map(first.connectors.flatMap(c => (c.topics ?? []).map(t => [c.name + "\n" + t.topic, t.records])));
  for (const c of data.connectors) for (const t of c.topics ?? []) {
    const key = c.name + "\n" + t.topic;
    rates.set(key, Math.max(0, t.records - (old.get(key) ?? 0)) / seconds);
  }
  return rates;
}
function render() {
  if (!data) return;
  const c = chosen(), several = data.connectors.length > 1;
  document.getElementById("about").textContent = data.version
    + (data.resident_bytes ? " · " + bytes(data.resident_bytes) + " of memory" : "")
    + (data.started ? " · up for " + duration((new Date(data.now) - new Date(data.started)) / 1000) : "");
  const main = [];
  if (several) main.push(fleet(c));
  if (others.workers.length > 1) main.push(workers());
  if (!c) main.push(h("p", {class: "panel"}, "This process has no connector. ", prose("`walferry apply -f FILE` creates one, and so does POST /connectors.")));
  else {
    main.push(verdict(c), ...details(c));
    const level = [...data.connectors].sort(byLevel)[0].level, sign = {good: "", note: "△ ", bad: "✕ "}[level];
    document.title = sign + readable(several && level !== "good" ? summary(data.connectors) : c.name) + " – Walferry";
    document.querySelector("link[rel=icon]").href = icon(level);
    const news = (several ? summary(data.connectors) + "; " : "") + c.name + ": " + PHASES[c.phase] + ", " + LEVELS[c.level];
    if (news !== told) document.getElementById("news").textContent = readable(told = news);
  }
  morphChildren(document.getElementById("main"), main.filter(Boolean));
}

/// Everything about a connector but the sentence. What another worker has sent may be of a form that this page does not know.
function details(c) {
  if (c.partial) return [];
  try {
    const lag = duration, {curves} = c;
    return [c.level !== "good" && incidents(c), warnings(c), way(c), figures(c),
      h("div", {class: "columns"},
        plot("records", "Records", curves.records_per_second, curves.interval_seconds, rate),
        plot("lag", "Behind", curves.lag_seconds, curves.interval_seconds, lag)),
      week(c),
      h("div", {class: "columns"},
        h("div", {class: "stack"}, topics(c, topicRates()), totals(c)),
        h("div", {class: "stack"}, [outboxes(c), mismatched(c), slots(c), c.level === "good" && incidents(c)].filter(Boolean)))];
  } catch (error) {
    if (!c.worker) throw error;
    return [h("p", {class: "panel quiet"}, "The page of its worker shows more.")];
  }
}

const OTHERS = new URL(location.pathname.replace(/\/?$/, "/others"), location.href);
/// Asks for what other workers run. A worker that hangs delays nothing else on the page.
async function askOthers() {
  try {
    const answer = await fetch(OTHERS, {cache: "no-store", signal: AbortSignal.timeout(8000)});
    if (answer.ok) others = await answer.json();
  } catch { /* What they said last stays. */ }
  if (data && others.workers.length > 1) { data = withOthers(data); render(); }
}
async function watchOthers() {
  if (!document.hidden && data) await askOthers();
  // A process that is alone may get other workers later.
  setTimeout(watchOthers, others.workers.length > 1 ? 2000 : 10000);
}
/// The connectors of this process and those of the others. One that has just moved is shown where it runs now.
function withOthers(fresh) {
  const own = fresh.connectors.filter(c => !c.worker), names = new Set(own.map(c => c.name));
  return {...fresh, connectors: [...own, ...others.connectors.filter(c => !names.has(c.name))]};
}

const SOURCE = new URL(location.pathname.replace(/\/?$/, "/data"), location.href);
let answered = null;
async function ask() {
  const live = document.getElementById("live");
  try {
    const answer = await fetch(SOURCE, {cache: "no-store", signal: AbortSignal.timeout(4000)});
    if (!answer.ok) throw new Error("HTTP " + answer.status);
    const fresh = await answer.json();
    const first = !data;
    if (data) before = [...before, data].slice(-5);
    data = withOthers(fresh);
    if (first) { remember(); watchOthers(); }
    answered = new Date();
    live.textContent = "Live · " + time(answered);
    document.body.classList.remove("gone");
    render();
  } catch (error) {
    document.body.classList.add("gone");
    live.textContent = answered ? "Walferry does not answer; showing values of " + time(answered) : "Walferry does not answer";
    console.warn(error);
  }
}
async function watch() {
  // A hidden page sends no requests.
  if (!document.hidden) await ask();
  setTimeout(watch, 1000);
}
addEventListener("hashchange", () => { render(); remember(); });
addEventListener("keydown", event => {
  if (event.key === "/" && !dialog().open && !/^(INPUT|TEXTAREA)$/.test(event.target.nodeName)) {
    document.getElementById("filter")?.focus();
    event.preventDefault();
  }
});
addEventListener("visibilitychange", () => document.hidden || ask());
watch();
setInterval(() => document.hidden || remember(), 60000);
