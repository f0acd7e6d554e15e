// ---- parts ------------------------------------------------------------------------------------------------------------
const LEVELS = {good: "OK", note: "note", bad: "needs attention"};
const PHASES = {
  starting: "Starting", snapshot: "Reading existing rows", streaming: "Streaming", waiting: "Retrying",
  failed: "Failed", stopped: "Stopped", paused: "Paused", restarting: "Restarting", relaying: "Relaying",
};
const mark = level => h("span", {class: "mark " + level, role: "img", "aria-label": LEVELS[level]});

const WORST = {bad: 0, note: 1, good: 2};
/// Whether somebody has asked for it to do nothing.
const rests = c => c.phase === "paused" || c.phase === "stopped";
/// Whether the connector needs an operator's action to continue.
const hasFailed = c => c.phase === "failed";
/// The worst first: of one level what has failed first, and what rests by request last; the others stay in the order of their names.
const byLevel = (a, b) => WORST[a.level] - WORST[b.level] || hasFailed(b) - hasFailed(a) || rests(a) - rests(b) || (a.name < b.name ? -1 : 1);
/// Such as "2 of 29 failed, 1 note, 3 paused".
function summary(connectors) {
  const all = connectors.length, number = level => connectors.filter(c => c.level === level).length;
  const failed = connectors.filter(c => c.phase === "failed").length, bad = number("bad") - failed;
  const resting = phase => connectors.filter(c => c.level === "note" && c.phase === phase).length;
  const paused = resting("paused"), stopped = resting("stopped"), note = number("note") - paused - stopped;
  return [failed && failed + " of " + all + " failed", bad && bad + " of " + all + (bad === 1 ? " needs" : " need") + " attention",
    note && plural(note, "note"), paused && paused + " paused", stopped && stopped + " stopped"].filter(Boolean).join(", ") || (all === 1 ? "It works" : "All " + all + " work");
}

let filter = "";
/// The list of connectors: the worst first.
function fleet(shown) {
  const matches = c => (c.name + " " + c.server + " " + PHASES[c.phase] + " " + (c.worker ?? "")).toLowerCase().includes(filter.toLowerCase().trim());
  const found = [...data.connectors].sort(byLevel).filter(matches);
  const search = data.connectors.length > 8 && h("input", {
    type: "search", id: "filter", "aria-label": "Show only connectors with this text", placeholder: "Filter by name or state",
    oninput: event => { filter = event.target.value; render(); },
  });
  return h("nav", {class: "fleet", "aria-label": "Connectors"},
    h("div", {class: "fleet-head"}, h("h2", {class: "small"}, summary(data.connectors)), search),
    data.connectors.length > 8 && h("button", {type: "button", class: "skip", onclick: toVerdict}, "Skip the list"),
    h("div", {class: "fleet-names quiet", "aria-hidden": "true"}, ["", "Connector", "State", "Behind", "What it does"].map(name => h("span", null, name))),
    found.length === 0 ? h("p", {class: "quiet"}, "No connector has this text in its name or state.")
      : h("ul", null, found.map(one => h("li", {"data-key": one.name},
        h("a", {href: "#" + encodeURIComponent(one.name), "aria-current": one === shown && "true"},
          mark(one.level), h("b", null, one.name), h("span", {class: "tag " + one.level}, PHASES[one.phase]),
          h("span", {class: "number quiet", title: "Time behind Postgres"}, h("span", {class: "hidden"}, "behind: "), one.lag_seconds == null ? "–" : duration(one.lag_seconds)),
          h("span", {class: "line"}, one.worker && "On " + one.worker + ". ", one.place === "deputy" && "As a deputy. ", one.reason))))));
}

/// The workers that share the connectors: what each has, what moves, and who stands in for one that is gone.
function workers() {
  const names = list => list.length === 0 ? "–" : list.slice(0, 20).join(", ") + (list.length > 20 ? " and " + (list.length - 20) + " more" : "");
  return h("details", {class: "panel", "data-key": "workers"},
    h("summary", null, plural(others.workers.length, "worker") + " ", h("span", {class: "aside"}, "share the connectors")),
    h("div", {class: "scroll"}, h("table", null,
      h("thead", null, h("tr", null, h("th", {scope: "col"}, "Worker"), h("th", {scope: "col"}, "Owns"), h("th", {scope: "col"}, "Deputy for"),
        h("th", {scope: "col", class: "wide"}, "Moves away"))),
      h("tbody", null, others.workers.map(w => h("tr", null,
        h("th", {scope: "row"}, w.address, " ", w.own && h("span", {class: "tag"}, "this one"), " ", w.leads && h("span", {class: "tag"}, "leads"),
          w.problem && h("div", {class: "quiet small"}, w.problem)),
        h("td", null, names(w.connectors)), h("td", null, names(w.deputy)), h("td", {class: "wide"}, names(w.leaving))))))));
}

/// Leads those who use the keyboard past a long list.
function toVerdict() {
  const heading = document.getElementById("name");
  heading?.focus();
  heading?.scrollIntoView({block: "start"});
}

function verdict(c) {
  return h("section", {class: "panel verdict " + c.level, "aria-labelledby": "name"},
    h("div", {class: "title"}, mark(c.level), h("h2", {id: "name", tabindex: "-1"}, c.name),
      h("span", {class: "tag " + c.level}, PHASES[c.phase]),
      h("span", {class: "quiet small"}, c.since && "since " + time(c.since), c.ready ? "" : " · not ready")),
    (c.worker || c.place === "deputy" || c.place === "leaving") && h("p", {class: "quiet small"}, c.worker ? "Runs on the worker " + c.worker : "Runs on this worker",
      c.place === "deputy" && " as a deputy, because the worker that owns it is gone", c.place === "leaving" && ", where it ends now, because it moves to another one",
      c.counted_since && ", since " + time(c.counted_since), "."),
    h("p", {class: "reason"}, prose(c.reason)),
    actions(c),
    c.phase === "snapshot" && c.snapshot.tables > 0 && meter(c.snapshot.rows_estimate > 0
      ? Math.min(1, c.snapshot.rows / c.snapshot.rows_estimate) : 1 - c.snapshot.tables_left / c.snapshot.tables, ""),
    c.incremental && meter(c.incremental.rows_estimate > 0
      ? Math.min(1, c.incremental.rows / c.incremental.rows_estimate) : 1 - c.incremental.tables_left / c.incremental.tables, ""),
    c.hints.length > 0 && h("div", {class: "todo"}, h("b", null, "What to do"),
      h("ul", null, c.hints.map(hint => h("li", null, h("span", null, prose(hint)))))));
}

const STEPS = {
  server: ["Written", "written by Postgres"],
  received: ["Received", "read and turned into records"],
  delivered: ["Delivered", "acknowledged by Kafka"],
  stored: ["Stored", "the offset is durable"],
  confirmed: ["Confirmed", "Postgres may remove its WAL"],
};
function way(c) {
  if (c.relay) return null;
  const gap = p => p.step === "server" ? null
    : p.behind_bytes == null ? "nothing yet" : p.behind_bytes === 0 ? "up to date" : bytes(p.behind_bytes) + " behind";
  return panel(["Path of a change ", h("span", {class: "aside"}, "each step shows how far it is behind the previous one")], h("ol", {class: "way"}, c.positions.map(p =>
    h("li", {class: p.behind_bytes >= 64 * 2 ** 20 && "far"},
      h("b", null, STEPS[p.step][0]), h("span", {class: "lsn", title: "LSN"}, p.lsn ?? "–"),
      h("span", {class: "what quiet small"}, STEPS[p.step][1]), gap(p) && h("span", {class: "gap"}, gap(p))))));
}

/// What a connector in relay mode has in place of positions and a slot.
function relayed(c) {
  const r = c.relay, more = r.waiting >= r.most ? " or more" : "";
  return h("div", {class: "figures"},
    panel("Rows that wait", h("p", {class: "value"}, r.waiting == null ? "not known" : count(r.waiting) + more),
      h("p", {class: "quiet small"}, r.problem ?? (r.counted ? "counted at " + time(r.counted) : "not counted yet"))),
    panel("Oldest of them", h("p", {class: "value"}, r.waiting === 0 ? "none" : r.oldest_seconds == null ? "not known" : duration(r.oldest_seconds)),
      h("p", {class: "quiet small"}, r.failed > 0 ? plural(r.failed, "row") + (r.failed >= r.most ? " or more" : "") + " failed for good" : r.failed === 0 ? "no row has failed for good" : "")),
    panel("Transaction", h("p", {class: "value"}, millis(r.transaction_p50_ms), r.transaction_p50_ms != null && h("small", null, " p50")),
      h("p", {class: "quiet small"}, r.transaction_p99_ms == null ? "no row was sent" : "p99 " + millis(r.transaction_p99_ms))),
    panel("Lanes", h("p", {class: "value"}, r.own_lanes + " of " + r.lanes), h("p", {class: "quiet small"}, "taken by the last look of this process"),
      r.owners.map(o => h("p", {class: "quiet small"}, plural(o.lanes, "lane") + ": process " + o.pid + " of the server" + (o.who && ", " + o.who)))));
}
function polledTable(c) {
  const r = c.relay, pairs = [["Rows sent", count(r.sent_rows)], ["Attempts that failed", count(r.failed_attempts)],
    ["Rows sent late", count(r.late_rows)], ["Looks that found rows", count(r.looks)], ["Looks that found nothing", count(r.empty_looks)],
    ["Statements of looks and marks", count(r.statements)],
    ...(r.size ? [["Dead rows", count(r.size.dead_rows)], ["Size", bytes(r.size.bytes)]] : [])];
  return panel(["Outbox ", h("span", {class: "aside"}, r.table)], h("dl", {class: "pairs"}, pairs.map(([name, n]) => [h("dt", null, name), h("dd", null, n)])));
}

function figures(c) {
  if (c.relay) return relayed(c);
  const own = c.slots.slots.find(slot => slot.ours);
  const flight = c.in_flight, full = flight.limit_bytes ? Math.min(1, flight.bytes / flight.limit_bytes) : 0;
  return h("div", {class: "figures"},
    panel("Behind", h("p", {class: "value"}, c.lag_seconds === null ? "not known yet" : duration(c.lag_seconds)),
      h("p", {class: "quiet small"}, c.lag_bytes == null ? "position not known yet" : bytes(c.lag_bytes) + " of WAL")),
    panel("Commit to Kafka", h("p", {class: "value"}, millis(c.latency.p50_ms), c.latency.p50_ms != null && h("small", null, " p50")),
      h("p", {class: "quiet small"}, (c.latency.transactions ? "p99 " + millis(c.latency.p99_ms) + " · " : "")
        + (c.latency.transactions ? plural(c.latency.transactions, "transaction") : "no transaction")
        + (c.latency.window_seconds >= 1 ? " in " + duration(c.latency.window_seconds) : ""))),
    panel("In flight to Kafka", h("p", {class: "value"}, count(flight.records), h("small", null, flight.records === 1 ? " record" : " records")),
      meter(full, full > 0.95 ? "note" : ""),
      h("p", {class: "quiet small"}, bytes(flight.bytes) + (flight.limit_bytes ? " of " + bytes(flight.limit_bytes) : ""))),
    kept(own, c.slots.age_seconds));
}
const meter = (share, level) => h("div", {class: "meter " + level, "aria-hidden": "true"}, h("i", {style: "width:" + (100 * share).toFixed(1) + "%"}));
function kept(slot, age) {
  const old = age == null ? "no data from the server yet" : age >= 15 ? "as of " + duration(age) + " ago" : null;
  if (!slot) return panel("WAL kept for the slot", h("p", {class: "value"}, "–"), h("p", {class: "quiet small"}, old));
  const room = slot.safe_wal_size, all = (slot.retained_wal_bytes ?? 0) + Math.max(0, room ?? 0);
  const share = room != null && all > 0 ? slot.retained_wal_bytes / all : null;
  const text = slot.wal_status === "lost" ? "the slot is lost" : slot.wal_status === "unreserved" ? "lost at the next checkpoint"
    : room == null ? "no limit is set" : bytes(Math.max(0, room)) + " until the slot is lost";
  return panel("WAL kept for the slot", h("p", {class: "value"}, bytes(slot.retained_wal_bytes)),
    share != null && meter(share, share > 0.9 ? "bad" : share > 0.6 ? "note" : ""),
    h("p", {class: "quiet small"}, text, old && ", " + old));
}

let hover = null;
function plot(id, title, values, interval, say) {
  const svg = document.getElementById("curve").content.firstElementChild.cloneNode(true);
  const top = Math.max(...values, 1), width = 300, height = 68;
  const x = i => values.length < 2 ? 0 : i * width / (values.length - 1), y = v => 71 - v / top * height;
  if (values.length > 1 && values.some(v => v > 0)) {
    const line = values.map((v, i) => x(i).toFixed(1) + " " + y(v).toFixed(1)).join("L");
    svg.querySelector(".stroke").setAttribute("d", "M" + line);
    svg.querySelector(".area").setAttribute("d", "M0 71L" + line + "L" + width + " 71Z");
  }
  svg.onpointermove = event => {
    const box = event.currentTarget.getBoundingClientRect();
    hover = {id, share: Math.min(1, Math.max(0, (event.clientX - box.left) / box.width))};
    render();
  };
  svg.onpointerleave = () => { hover = null; render(); };
  let told = "at most " + say(Math.max(...values, 0));
  const cursor = svg.querySelector(".cursor");
  if (hover?.id === id && values.length > 1) {
    const i = Math.round(hover.share * (values.length - 1));
    told = say(values[i]) + ", " + duration((values.length - 1 - i) * interval) + " ago";
    cursor.setAttribute("x1", x(i)); cursor.setAttribute("x2", x(i));
  } else cursor.remove();
  const now = values.length ? say(values[values.length - 1]) : "–";
  return h("section", {class: "panel"},
    h("div", {class: "plot-head"}, h("h3", null, title, " ", h("span", {class: "quiet"}, now)), h("span", {class: "quiet small"}, told)),
    svg, h("div", {class: "plot-foot quiet small"}, h("span", null, duration(values.length * interval) + " ago"), h("span", null, "now")));
}

function topics(c, rates) {
  if (c.topics.length === 0) return panel("Topics", h("p", {class: "quiet"}, "None since " + time(c.counted_since) + "."));
  return panel("Topics", h("div", {class: "scroll"}, h("table", null,
    h("thead", null, h("tr", null, h("th", {scope: "col"}, "Topic"), h("th", {scope: "col", class: "number"}, "Now"),
      h("th", {scope: "col", class: "number"}, "Records"), h("th", {scope: "col", class: "number wide"}, "Keys and values"))),
    h("tbody", null, c.topics.map(t => h("tr", null, h("th", {scope: "row"}, t.topic),
      h("td", {class: "number quiet"}, rate(rates.get(c.name + "\n" + t.topic) ?? 0)), h("td", {class: "number"}, count(t.records)),
      h("td", {class: "number wide"}, bytes(t.bytes))))))),
    c.topic_count > c.topics.length && h("p", {class: "quiet small"}, "and " + plural(c.topic_count - c.topics.length, "more topic")));
}

function slots(c) {
  if (c.relay) return null;
  const seen = c.slots;
  if (seen.age_seconds == null) return panel("Replication slots on the server", h("p", {class: "quiet"}, "No data from the server yet."));
  const use = s => s.wal_status === "lost" ? h("span", {class: "tag bad"}, "lost") : s.active ? h("span", {class: "tag good"}, "in use")
    : h("span", {class: "tag " + (s.forgotten ? "bad" : "note")}, s.forgotten ? "forgotten?" : "unused");
  const row = s => [
    h("tr", null,
      h("th", {scope: "row"}, s.name, " ", s.ours && h("span", {class: "tag"}, "ours"),
        h("div", {class: "quiet small"}, [s.kind, s.plugin, s.database && "database " + s.database].filter(Boolean).join(" · "))),
      h("td", null, use(s), s.inactive_seconds != null && h("div", {class: "quiet small"}, "for " + duration(s.inactive_seconds)),
        s.active_pid != null && h("div", {class: "quiet small"}, "by " + (s.connector ? "connector " + s.connector + " here, " : "") + "process " + s.active_pid)),
      h("td", {class: "number"}, bytes(s.retained_wal_bytes)),
      h("td", {class: "number wide"}, bytes(s.lag_bytes)),
      h("td", {class: "wide"}, s.wal_status ?? "–")),
    s.remark && h("tr", {class: "remark"}, h("td", {colspan: "5"}, s.remark[0].toUpperCase() + s.remark.slice(1) + ". ",
      s.drop_sql && ["If no process will read it again:", copyable(s.drop_sql)])),
  ];
  // The one of this connector first: a server may have many.
  const sorted = [...seen.slots.filter(s => s.ours), ...seen.slots.filter(s => !s.ours)];
  return panel("Replication slots on the server", h("div", {class: "scroll high", role: "region", "aria-label": "Replication slots", tabindex: "0"}, h("table", null,
    h("thead", null, h("tr", null, h("th", {scope: "col"}, "Slot"), h("th", {scope: "col"}, "Use"),
      h("th", {scope: "col", class: "number"}, "WAL kept"), h("th", {scope: "col", class: "number wide"}, "Behind"),
      h("th", {scope: "col", class: "wide"}, "State"))),
    h("tbody", null, sorted.map(row)))),
    h("p", {class: "quiet small"}, "As of " + duration(seen.age_seconds) + " ago; the server’s WAL ended at ", h("span", {class: "lsn"}, seen.wal_end), "."));
}

function outboxes(c) {
  if (c.relay) return polledTable(c);
  if (c.outboxes.length === 0) return null;
  const row = o => h("tr", null,
    h("th", {scope: "row"}, o.table, o.partitions > 0 && h("div", {class: "quiet small"}, plural(o.partitions, "partition"))),
    h("td", {class: "number"}, o.unconfirmed == null ? "–" : count(o.unconfirmed.rows) + (o.unconfirmed.rows >= 100000 ? " or more" : "")),
    h("td", {class: "number"}, o.unconfirmed == null ? "–" : o.unconfirmed.rows > 0 ? duration(o.unconfirmed.seconds) : "none"),
    h("td", {class: "number wide"}, count(o.dead_rows)), h("td", {class: "number wide"}, bytes(o.bytes)));
  return panel("Outbox tables", h("div", {class: "scroll"}, h("table", null,
    h("thead", null, h("tr", null, h("th", {scope: "col"}, "Table"), h("th", {scope: "col", class: "number"}, "Not confirmed"),
      h("th", {scope: "col", class: "number"}, "Oldest"), h("th", {scope: "col", class: "number wide"}, "Dead rows"),
      h("th", {scope: "col", class: "number wide"}, "Size"))),
    h("tbody", null, c.outboxes.map(row)))),
    h("p", {class: "quiet small"}, plural(c.totals.outbox_removed, "delivered row") + " removed since " + time(c.counted_since) + "."));
}

function mismatched(c) {
  const types = Object.entries(c.mismatched).sort((a, b) => b[1] - a[1]);
  if (types.length === 0) return null;
  return panel("Events that do not match their schemas", h("ul", {class: "list"}, types.slice(0, 10).map(([type, events]) =>
    h("li", null, type + ": " + count(events)))),
    types.length > 10 && h("p", {class: "quiet small"}, "and " + plural(types.length - 10, "more type") + "; /metrics has all of them"));
}

function warnings(c) {
  if (c.warnings.length === 0) return null;
  return panel("Settings that weaken a guarantee", h("ul", {class: "list"}, c.warnings.map(text =>
    h("li", null, h("span", {class: "tag note"}, "warning"), " ", prose(text)))));
}
function incidents(c) {
  if (c.incidents.length === 0) return null;
  return panel("Last failures since " + time(c.counted_since), h("ul", {class: "list"}, c.incidents.map(i => h("li", null,
    h("div", {class: "quiet small"}, time(i.last), i.times > 1 ? ", " + count(i.times) + " times" : "", " · ", i.kind, " · ", i.code),
    prose(i.what), i.hints.length > 0 && h("div", {class: "small"}, "→ ", i.hints.map((hint, n) => [n ? "; " : "", prose(hint)]))))));
}
function totals(c) {
  const t = c.totals, pairs = [["Changes read", t.changes], ["Transactions", t.transactions], ["Records sent", t.records],
    ...Object.entries(c.skipped).map(([reason, rows]) => ["Rows without a record: " + reason, rows]),
    t.set_aside > 0 && ["Records set aside", t.set_aside],
    c.snapshot.tables > 0 && ["Existing rows read", c.snapshot.rows],
    [c.relay ? "Sessions" : "Connections of the stream", t.connects], ["Restarts after a failure", t.restarts],
    ...Object.entries(c.errors).map(([kind, n]) => ["Failures: " + kind, n])].filter(Boolean);
  return panel("Since " + time(c.counted_since), h("dl", {class: "pairs"}, pairs.map(([name, n]) => [h("dt", null, name), h("dd", null, count(n))])),
    h("p", {class: "quiet small"}, "That is when the process was started, or this configuration was set."),
    c.table_change && h("p", {class: "quiet small"}, "Last change of a table’s columns: " + c.table_change.change + ", at ", time(c.table_change.at), "."));
}


// ---- a week -----------------------------------------------------------------------------------------------------------
/// What the process keeps of each connector for a week, by name.
const weeks = new Map();
/// Asks for the week of the connector that is shown.
async function remember() {
  const c = data && chosen();
  if (!c) return;
  try {
    weeks.set(c.name, await request("GET", at(c.name, "/history")));
    render();
  } catch { /* A process without a folder keeps none. */ }
}
function week(c) {
  const kept = weeks.get(c.name);
  if (!kept || kept.points.length < 2) return null;
  const of = name => kept.points.map(point => point[name]), step = kept.step_seconds;
  const marks = kept.points.filter(point => point.restarts > 0 || point.failures > 0);
  return h("details", {class: "panel", "data-key": "week"}, h("summary", null, "The last " + duration(kept.points.length * step), " ",
      h("span", {class: "aside"}, plural(of("restarts").reduce((a, b) => a + b, 0), "restart") + ", " + plural(of("failures").reduce((a, b) => a + b, 0), "failure"))),
    h("div", {class: "columns"}, plot("week-rows", "Records", of("records").map(n => n / step), step, rate),
      plot("week-lag", "Behind", of("lag_seconds"), step, duration), !c.relay && plot("week-wal", "WAL kept", of("wal_bytes"), step, bytes),
      marks.length > 0 && panel("Restarts and failures", h("ul", {class: "list"}, marks.slice(-8).reverse().map(point => h("li", null,
        h("span", {class: "quiet small"}, time(point.at)), " ", [point.restarts > 0 && plural(point.restarts, "restart"),
        point.failures > 0 && plural(point.failures, "failure")].filter(Boolean).join(", ")))))));
}
