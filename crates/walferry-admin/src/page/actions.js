// ---- actions ----------------------------------------------------------------------------------------------------------
// Each asks once before it changes something, and says what happened. The server logs who asked for it.
const dialog = () => document.getElementById("dialog");
let opened = 0;

/// Opens the dialog. `content` are its parts above the buttons; `confirm`, if there is one, is `{label, run}`, and its text is shown as long as
/// the dialog stays open.
function openDialog(title, content, confirm) {
  const turn = ++opened, said = h("p", {class: "said", role: "status"});
  const close = h("button", {type: "button", onclick: () => dialog().close()}, confirm ? "Cancel" : "Close");
  const act = confirm && h("button", {type: "submit", class: "main"}, confirm.label);
  const form = h("form", {method: "dialog"}, h("h2", {id: "dialog-title"}, title), content, said, h("div", {class: "buttons"}, act, close));
  form.onsubmit = async event => {
    event.preventDefault();
    if (!confirm || act.disabled) return;
    act.disabled = true;
    say(said, "Sending …", "");
    try {
      const told = await confirm.run();
      if (turn !== opened) return;
      say(said, told, "good");
      act.remove();
      close.textContent = "Close";
      close.focus();
      ask();
    } catch (error) {
      act.disabled = false;
      say(said, error.message, "bad");
    }
  };
  dialog().replaceChildren(form);
  if (!dialog().open) dialog().showModal();
  (form.querySelector("input, textarea") ?? act ?? close).focus();
  return {form, said, act, isOpen: () => turn === opened && dialog().open};
}
function say(element, text, level) {
  element.textContent = readable(text);
  element.className = "said " + level;
}

const SIMPLE = {
  restart: {
    label: "Restart", title: name => "Restart " + name + "?", method: "POST", path: "/restart?includeTasks=true",
    what: "The connector stops in order and continues from its stored offset.", done: "It restarts.",
  },
  pause: {
    label: "Pause", title: name => "Pause " + name + "?", method: "PUT", path: "/pause",
    what: "The connector sends nothing until it is resumed, even after a restart of the process. Its slot stays in use, and the server keeps the WAL.",
    done: "It pauses.",
  },
  resume: {
    label: "Resume", title: name => "Resume " + name + "?", method: "PUT", path: "/resume",
    what: "The connector continues from its stored offset.", done: "It resumes.",
  },
  stop: {
    label: "Stop", title: name => "Stop " + name + "?", method: "PUT", path: "/stop",
    what: "The connector stops in order and frees its slot until it is resumed, even after a restart of the process. The server keeps the WAL.",
    done: "It stops.",
  },
};
function simple(c, action) {
  const {label, title, method, path, what, done} = SIMPLE[action];
  return button(label, () => openDialog(title(c.name), h("p", null, what),
    {label, run: async () => { await request(method, at(c.name, path)); return done; }}));
}
const button = (label, onclick) => h("button", {type: "button", onclick}, label);

/// What may be done with a connector in its state, by whoever looks at the page.
function actions(c) {
  const goes = c.phase !== "paused" && c.phase !== "stopped";
  const changes = data.may_change && [
    c.failed_change && button("Pass over this record …", () => passOver(c)),
    simple(c, "restart"), goes ? simple(c, "pause") : simple(c, "resume"), c.phase !== "stopped" && simple(c, "stop"),
    button("Read a table again …", () => snapshot(c)), button("Configuration …", () => configuration(c)),
  ];
  return h("div", {class: "actions", role: "group", "aria-label": "Actions for " + c.name}, changes,
    !data.may_change && button("Configuration …", () => configuration(c)),
    button("Offset …", () => offsets(c)), button("Notifications …", () => notifications(c)),
    data.may_change && button("Log …", () => log(c)),
    !data.may_change && h("span", {class: "quiet small"}, "Your login may read but not change anything."));
}

/// The one change at which the connector has failed.
function passOver(c) {
  const position = c.failed_change;
  openDialog("Pass over one record of " + c.name + "?", [
    h("p", null, "Consumers will not get the records of the change at ", h("code", null, position), ". All other changes are sent. The connector starts again."),
    h("p", {class: "reason"}, prose(c.reason)),
    h("p", {class: "quiet small"}, prose("The records go to the topic that `errors.deadletterqueue.topic.name` names. Without it, they are only logged. The log also says who has asked for this.")),
  ], {label: "Pass over", run: async () => {
    await request("POST", at(c.name, "/skip-record"), {position});
    return "It is passed over. The connector starts again.";
  }});
}

const field = (label, control, help) => h("label", {class: "field"}, h("span", null, label), control, help && h("span", {class: "quiet small"}, help));

function snapshot(c) {
  const table = h("input", {name: "table", required: true, spellcheck: "false", autocomplete: "off", placeholder: "public.orders"});
  const where = h("input", {name: "where", spellcheck: "false", autocomplete: "off", placeholder: "id > 1000"});
  const blocking = h("input", {type: "checkbox", name: "blocking"});
  openDialog("Read a table of " + c.name + " again", [
    field("Table", table, "With its schema. Names that are no plain identifiers are quoted, as in SQL."),
    field("Only rows with", where, "A condition in SQL. Without it, all rows are read."),
    h("label", {class: "check"}, blocking, " Stop the stream meanwhile"),
    h("p", {class: "quiet small"}, "Without this, rows are read in chunks beside the stream. Each row becomes a record; consumers see it again."),
  ], {label: "Read", run: async () => {
    const name = table.value.trim(), condition = where.value.trim();
    // What is known to fail is refused at once, with the reason.
    const answer = await request("POST", at(c.name, "/signals"), {type: "execute-snapshot", check: true, data: {
      type: blocking.checked ? "BLOCKING" : "INCREMENTAL", "data-collections": [name],
      ...(condition && {"additional-conditions": [{"data-collection": name,
        filter: blocking.checked ? "SELECT * FROM " + name + " WHERE " + condition : condition}]}),
    }});
    return answer.stored ? "It was asked for. The request is stored: no crash can lose it. The notifications tell how it goes."
      : "It was asked for, and is not stored yet: the connector takes it as soon as it streams.";
  }});
}

/// The configuration with what is wrong in it, while it is edited.
async function configuration(c) {
  const text = h("textarea", {name: "configuration", rows: "18", spellcheck: "false", readonly: !data.may_change && "", "aria-describedby": "problems"});
  const problems = h("ul", {class: "list", id: "problems"});
  const view = openDialog("Configuration of " + c.name, [
    field("As JSON", text, data.may_change && "Saving restarts the connector, which continues from its stored offset."), problems,
  ], data.may_change && {label: "Save", run: async () => {
    await request("PUT", at(c.name, "/config"), JSON.parse(text.value));
    return "It is saved. The connector restarts with it.";
  }});
  let pause = null, looked = 0;
  const show = (lines, level) => problems.replaceChildren(...lines.map(line => h("li", null, h("span", {class: "tag " + level}, level === "bad" ? "problem" : "fine"), " ", line)));
  const look = async () => {
    const turn = ++looked;
    let config;
    try { config = JSON.parse(text.value); } catch (error) { view.act.disabled = true; show(["This is not JSON: " + error.message], "bad"); return; }
    if (config === null || Array.isArray(config) || typeof config !== "object") { view.act.disabled = true; show(["A configuration is a JSON object."], "bad"); return; }
    try {
      const plugin = encodeURIComponent(String(config["connector.class"] ?? ""));
      const answer = await request("PUT", "connector-plugins/" + plugin + "/config/validate", {...config, name: c.name});
      if (turn !== looked || !view.isOpen()) return;
      const wrong = answer.configs.flatMap(({value}) => value.errors.map(error => value.name + ": " + error));
      view.act.disabled = wrong.length > 0;
      show(wrong.length > 0 ? wrong : ["Nothing is wrong with it."], wrong.length > 0 ? "bad" : "good");
    } catch (error) {
      if (turn === looked && view.isOpen()) show(["It could not be checked: " + error.message], "bad");
    }
  };
  try {
    text.value = JSON.stringify(await request("GET", at(c.name, "/config")), null, 2);
  } catch (error) {
    say(view.said, error.message, "bad");
    view.act?.remove();
    return;
  }
  if (!view.act) return;
  text.oninput = () => { view.act.disabled = true; clearTimeout(pause); pause = setTimeout(look, 700); };
  look();
}

async function offsets(c) {
  const shown = h("pre", null, "…");
  openDialog("Stored offset of " + c.name, [shown, h("p", {class: "quiet small"}, "A stopped connector’s offset is changed with PATCH of this path of the REST API, or ",
    h("code", null, "walferry offsets"), ".")]);
  shown.textContent = readable(await request("GET", at(c.name, "/offsets")).then(body => JSON.stringify(body, null, 2), error => error.message));
}

/// The latest notifications, the newest first, and new ones as they come.
async function notifications(c) {
  const list = h("ul", {class: "list"});
  const view = openDialog("Notifications of " + c.name, [list]);
  const line = told => h("li", null, h("div", {class: "quiet small"}, time(told.timestamp), " · ", told.aggregateType, " · ", told.type, " · ", told.id),
    h("code", null, JSON.stringify(told.additionalData)));
  while (view.isOpen()) {
    const all = await request("GET", at(c.name, "/notifications")).catch(error => say(view.said, error.message, "bad"));
    if (all) morphChildren(list, all.length ? all.reverse().map(line) : [h("li", {class: "quiet"}, prose("None since the connector started. They are kept if `notification.enabled.channels` contains `jmx`."))]);
    await new Promise(done => setTimeout(done, 2000));
  }
}

/// Lines of the log that are kept in the dialog.
const LINES = 1000;
/// The last lines of the log that are about this connector, and new ones as they come.
async function log(c) {
  const shown = h("pre", {class: "log", tabindex: "0", "aria-label": "Log of " + c.name}, "…");
  const view = openDialog("Log of " + c.name, [shown]);
  let after = 0, lines = [];
  while (view.isOpen()) {
    const follows = shown.scrollTop + shown.clientHeight >= shown.scrollHeight - 4;
    try {
      const answer = await request("GET", at(c.name, "/logs?after=" + after));
      after = answer.next;
      lines = [...lines, ...answer.lines.map(({line}) => line)].slice(-LINES);
      shown.textContent = lines.join("\n") || "Nothing yet.";
      say(view.said, "", "");
    } catch (error) {
      say(view.said, error.message, "bad");
    }
    if (follows) shown.scrollTop = shown.scrollHeight;
    await new Promise(done => setTimeout(done, 2000));
  }
}
