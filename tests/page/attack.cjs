// What others may try with the page, in Chromium: through names and texts that it shows, and from pages of their own. Used by `drive.cjs`.
"use strict";
const assert = require("node:assert/strict");
const {createServer, request} = require("node:http");

/// One request as it is written here: no client that would tidy its path. Without an answer, `null`.
const plain = (url, path, options = {}) => new Promise(done => {
  const {hostname, port} = new URL(url);
  const sent = request({hostname, port, path, method: "GET", agent: false, ...options}, answer => {
    const parts = [];
    answer.on("data", part => parts.push(part));
    answer.on("end", () => done({status: answer.statusCode, headers: answer.headers, body: Buffer.concat(parts).toString()}));
  });
  sent.on("error", () => done(null));
  sent.end(options.body);
});
const json = async (url, path) => JSON.parse((await plain(url, path)).body);

/// What turns the direction of text, ends a line or shows nothing.
const HIDDEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/;
const readable = name => name.replace(new RegExp(HIDDEN, "g"), hidden => "\\u" + hidden.charCodeAt(0).toString(16).padStart(4, "0"));

/// Nothing that the page shows becomes markup or code, in any of its views and dialogs.
async function namesRunNothing(page, url) {
  const foreign = [];
  page.on("request", sent => sent.url().startsWith(url) || sent.url().startsWith("data:") || foreign.push(sent.url()));
  page.on("dialog", dialog => { foreign.push(dialog.message()); dialog.dismiss(); });
  await page.evaluate(() => addEventListener("securitypolicyviolation", event => { (window.violations ??= []).push(event.violatedDirective); }));
  const names = await json(url, "/connectors");
  assert.ok(names.length > 6, names.join());
  for (const name of names) {
    await page.evaluate(name => { location.hash = encodeURIComponent(name); }, name);
    await page.waitForFunction(name => document.querySelector(".verdict h2")?.textContent === name, readable(name));
    for (const action of ["Configuration …", "Offset …", "Notifications …", "Log …"]) {
      const answered = page.waitForResponse(answer => answer.url().includes("/connectors/"));
      await page.getByRole("button", {name: action, exact: true}).click();
      await page.getByRole("dialog").waitFor();
      await answered;
      assert.doesNotMatch(await page.evaluate(() => document.title + document.body.innerText), HIDDEN, action + " of " + name);
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({state: "hidden"});
    }
  }
  // What was called so is shown so.
  await page.evaluate(() => { location.hash = "orders"; });
  await page.locator("nav.fleet b", {hasText: "<img src=x onerror=owned()>"}).first().waitFor();
  const found = await page.evaluate(() => ({
    owned: window.owned, violations: window.violations,
    elements: [...document.querySelectorAll("main img, main script, main iframe, main svg[onload], main a:not([href^='#']), dialog img, dialog script")].length,
    handlers: [...document.querySelectorAll("main *, dialog *")].filter(one => [...one.attributes].some(({name}) => name.startsWith("on"))).length,
  }));
  assert.deepEqual({...found, foreign}, {owned: undefined, violations: undefined, elements: 0, handlers: 0, foreign: []});
}

/// What a page of somebody else may do, run in that page. `url` is Walferry.
const ATTEMPTS = {
  "a form": url => new Promise(done => {
    const frame = document.createElement("iframe"), form = document.createElement("form");
    frame.name = "hidden"; frame.onload = () => done("sent");
    Object.assign(form, {method: "post", action: url + "/connectors/orders/restart", target: "hidden"});
    document.body.append(frame, form);
    form.submit();
  }),
  "a form with JSON as plain text": url => new Promise(done => {
    const frame = document.createElement("iframe"), form = document.createElement("form"), field = document.createElement("input");
    frame.name = "json"; frame.onload = () => done("sent");
    Object.assign(field, {name: '{"name":"pwned","config":{"a":"', value: '"}}'});
    Object.assign(form, {method: "post", action: url + "/connectors", target: "json", enctype: "text/plain"});
    form.append(field); document.body.append(frame, form);
    form.submit();
  }),
  "a frame without an origin": url => new Promise(done => {
    const frame = document.createElement("iframe");
    frame.sandbox = "allow-scripts allow-forms"; frame.onload = () => setTimeout(() => done("sent"), 300);
    frame.srcdoc = `<script>fetch(${JSON.stringify(url + "/connectors/orders/stop")}, {method: "PUT", mode: "no-cors"}).catch(() => {});
      fetch(${JSON.stringify(url + "/connectors/orders/restart")}, {method: "POST", mode: "no-cors"}).catch(() => {})</script>`;
    document.body.append(frame);
  }),
  "a request without CORS": url => fetch(url + "/connectors/orders/restart", {method: "POST", mode: "no-cors"}).then(() => "sent", error => error.name),
  "PUT": url => fetch(url + "/connectors/orders/pause", {method: "PUT"}).then(answer => "read " + answer.status, error => error.name),
  "DELETE": url => fetch(url + "/connectors/orders", {method: "DELETE"}).then(answer => "read " + answer.status, error => error.name),
  "a beacon": url => { navigator.sendBeacon(url + "/connectors/orders/restart", "{}"); return "sent"; },
  "reading": url => fetch(url + "/connectors/orders/config").then(answer => "read " + answer.status, error => error.name),
  "reading with the login": url => fetch(url + "/ui/data", {credentials: "include"}).then(answer => "read " + answer.status, error => error.name),
  "events": url => new Promise(done => { const source = new EventSource(url + "/ui/data"); source.onerror = () => { source.close(); done("none"); }; source.onmessage = () => done("read"); }),
  "a web socket": url => new Promise(done => { const socket = new WebSocket(url.replace("http", "ws") + "/ui/data"); socket.onerror = () => done("none"); socket.onopen = () => done("read"); }),
  "a script": url => new Promise(done => {
    const script = document.createElement("script"), error = event => { done("ran: " + event.message); };
    Object.assign(script, {src: url + "/connectors", onload: () => done("none"), onerror: () => done("none")});
    addEventListener("error", event => event.message?.includes("Unexpected") || error(event));
    document.body.append(script);
  }),
  "an image": url => new Promise(done => { const image = new Image(); image.onload = () => done("read"); image.onerror = () => done("none"); image.src = url + "/ui"; }),
  "a style": url => new Promise(done => {
    const link = document.createElement("link");
    Object.assign(link, {rel: "stylesheet", href: url + "/ui/data", onload: () => done(document.styleSheets.length ? "read" : "none"), onerror: () => done("none")});
    document.head.append(link);
  }),
  // It loads where the connector exists, and not where it does not, if pages of others may load it at all.
  "a connector as an object": url => new Promise(done => {
    const object = document.createElement("object");
    Object.assign(object, {type: "text/plain", data: url + "/connectors/orders", onload: () => done("read"), onerror: () => done("none")});
    document.body.append(object);
  }),
  "a frame of the page": url => new Promise(done => {
    const frame = document.createElement("iframe");
    frame.src = url + "/ui";
    frame.onload = () => { try { done("read " + frame.contentDocument.title); } catch { done("none"); } };
    document.body.append(frame);
  }),
  "a window of the page": url => new Promise(done => {
    const opened = open(url + "/ui");
    setTimeout(() => { try { done("read " + opened.document.title); } catch { done("none"); } opened?.close(); }, 500);
  }),
};

/// A page of another origin changes nothing and reads nothing.
async function otherPagesDoNothing(browser, url) {
  const server = createServer((_, answer) => answer.setHeader("Content-Type", "text/html").end("<!doctype html><title>evil</title>"));
  await new Promise(done => server.listen(0, "127.0.0.1", done));
  const {port} = server.address(), restarts = async () => (await plain(url, "/metrics")).body.match(/^walferry_connector_starts_total.*$/mg);
  const before = {names: await json(url, "/connectors"), status: await json(url, "/connectors/orders/status"), restarts: await restarts()};
  const since = (await json(url, "/ui/data")).connectors.find(one => one.name === "orders").counted_since;
  try {
    // The same host with another port, another name of this machine, and a name that whoever owns it points at this machine.
    for (const origin of ["http://127.0.0.1:" + port, "http://localhost:" + port, "http://evil.test:" + port]) {
      const context = await browser.newContext(), page = await context.newPage();
      const frames = [];
      page.on("response", answer => answer.url() === url + "/ui" && frames.push(answer.status()));
      for (const [what, attempt] of Object.entries(ATTEMPTS)) {
        await page.goto(origin + "/");
        const told = await page.evaluate(attempt, url);
        assert.doesNotMatch(String(told), /^(read|ran)/, what + " from " + origin);
        if (what === "a frame of the page") {
          const inside = page.frames().find(frame => frame !== page.mainFrame());
          assert.doesNotMatch(await inside?.title().catch(() => "") ?? "", /Walferry/, what);
        }
      }
      await context.close();
    }
    const after = {names: await json(url, "/connectors"), status: await json(url, "/connectors/orders/status"), restarts: await restarts()};
    assert.deepEqual(after, before);
    assert.equal((await json(url, "/ui/data")).connectors.find(one => one.name === "orders").counted_since, since, "it was restarted");
    // The name leads to Walferry itself: the page is then of its origin.
    const context = await browser.newContext(), page = await context.newPage();
    const walferry = new URL(url).port;
    for (const path of ["/ui", "/ui/data", "/connectors"]) {
      const answer = await page.goto("http://evil.test:" + walferry + path);
      assert.ok(answer.status() >= 400 && !(await answer.text()).includes("orders"), path + " " + answer.status());
    }
    await context.close();
  } finally {
    server.close();
  }
}

/// Requests as no browser sends them.
async function oddRequestsGetNothing(url) {
  const host = new URL(url).host;
  const passwd = answer => assert.doesNotMatch(answer?.body ?? "", /root:x:/);
  for (const path of ["/ui/../../../../etc/passwd", "/ui/..%2f..%2f..%2f..%2fetc%2fpasswd", "/ui/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/connectors/..%2f..%2f..%2fetc%2fpasswd/history",
    "/connectors/%2e%2e/history", "/connectors/orders%00/history", "/connectors/orders/history/../../../etc/passwd", "/connectors/orders/logs?after=../../etc/passwd", "/ui?file=/etc/passwd",
    "/connectors/%ff%fe/history", "/connectors/" + "%41".repeat(2000) + "/history"]) {
    const answer = await plain(url, path);
    passwd(answer);
    assert.ok(answer.status === 200 ? path.startsWith("/ui?") || path.includes("orders/") : answer.status >= 400, path + " " + answer.status);
  }
  for (const path of ["//evil.test/ui", "/ui//evil.test", "/\\evil.test", "/ui/?next=http://evil.test", "/%0d%0aLocation:%20http://evil.test", "/connectors/%0d%0aSet-Cookie:%20a=b/status", "http://evil.test/ui"]) {
    const answer = await plain(url, path);
    assert.ok(answer === null || !answer.headers.location && !answer.headers["set-cookie"] && !(answer.status >= 300 && answer.status < 400), path);
  }
  for (const [path, options] of [["/ui?" + "a".repeat(200_000), {}], ["/connectors/" + "a".repeat(60_000) + "/logs", {}], ["/connectors/orders/logs?after=" + "9".repeat(5000), {}],
    ["/connectors/orders/logs?after=-1", {}], ["/connectors/orders/logs?" + "after=1&".repeat(5000), {}], ["/ui/data", {headers: {cookie: "a=" + "b".repeat(100_000)}}],
    ["/connectors/orders/signals", {method: "POST", body: "[".repeat(900_000), headers: {"content-type": "application/json"}}],
    ["/connectors/orders/signals", {method: "POST", body: "x".repeat(3_000_000), headers: {"content-type": "application/json"}}]]) {
    const answer = await plain(url, path, options);
    assert.ok(answer === null || answer.status >= 400 || path.startsWith("/ui?"), path.slice(0, 60) + " " + answer?.status);
  }
  for (const path of ["/ui", "/ui/data", "/connectors", "/connectors/orders/history", "/connectors/orders/logs", "/nothing", "/connectors/nobody"]) {
    const {headers, status} = await plain(url, path);
    const type = headers["content-type"] ?? "";
    if (path === "/ui") {
      assert.match(headers["content-security-policy"], /default-src 'none'.*frame-ancestors 'none'/);
      assert.match(type, /^text\/html/);
    } else {
      assert.doesNotMatch(type, /html/, path);
    }
    assert.equal(headers["x-content-type-options"], "nosniff", path + " " + status);
    assert.equal(headers["cross-origin-resource-policy"], "same-origin", path + " " + status);
    assert.equal(headers["access-control-allow-origin"], undefined, path);
    if (/data|history|logs/.test(path)) assert.equal(headers["cache-control"], "no-store", path);
  }
  // Somebody who speaks for another host, twice or not at all.
  for (const headers of [{host: "evil.test"}, {host: "evil.test:80"}, {host: host + ".evil.test"}, {host: "127.0.0.1.evil.test"}, {host, "x-forwarded-host": "evil.test", origin: "http://evil.test"}]) {
    const answer = await plain(url, "/connectors/orders/pause", {method: "PUT", headers});
    assert.ok(answer === null || answer.status >= 400, JSON.stringify(headers));
  }
  const {connectors} = await json(url, "/ui/data");
  assert.equal(connectors.find(one => one.name === "orders").phase, "streaming");
}

module.exports = {namesRunNothing, otherPagesDoNothing, oddRequestsGetNothing};
