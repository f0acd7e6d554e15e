// What a person does with the page, in Chromium: `node drive.cjs SCENARIO URL`. It ends with 0 when all was as it should be.
"use strict";
const assert = require("node:assert/strict");
const { readFileSync } = require("node:fs");
const { chromium } = require("playwright-core");
const {namesRunNothing, otherPagesDoNothing, oddRequestsGetNothing} = require("./attack.cjs");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const VIEWS = [
  {viewport: {width: 1280, height: 900}, colorScheme: "light"},
  {viewport: {width: 1280, height: 900}, colorScheme: "dark"},
  {viewport: {width: 390, height: 844}, colorScheme: "light"},
  {viewport: {width: 390, height: 844}, colorScheme: "dark"},
];

/// Nothing is wider than the window, and a screen reader finds a name for everything, with enough contrast.
async function looksRight(page, what) {
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 0, `${what}: ${overflow} px wider than the window`);
  await page.evaluate(AXE);
  const {violations} = await page.evaluate(() => axe.run(document, {rules: {region: {enabled: false}}}));
  const told = violations.map(one => one.id + ": " + one.help + " " + one.nodes.slice(0, 3).map(node => node.html.slice(0, 160)).join(" | "));
  assert.deepEqual(told, [], what);
}

const button = (page, name) => page.getByRole("button", {name, exact: true});
const said = page => page.locator("#dialog .said");
/// Waits until the page shows this word for the state of the connector.
const state = (page, word) => page.locator(".verdict .tag", {hasText: new RegExp("^" + word + "$")}).waitFor();

async function confirm(page, action, label, answer) {
  await button(page, action).click();
  await page.getByRole("dialog").waitFor();
  await page.locator("#dialog").getByRole("button", {name: label, exact: true}).click();
  await said(page).getByText(answer).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({state: "hidden"});
}

const SCENARIOS = {
  async act(page, view) {
    await state(page, "Streaming");
    await looksRight(page, "one connector");
    // One clock for all times, whatever the browser's is.
    assert.match(await page.locator("#live").textContent(), /^Live · \d\d:\d\d:\d\d UTC$/);
    const times = (await page.locator("body").innerText()).match(/\b\d\d?:\d\d(:\d\d)?\b.{0,4}/g);
    assert.deepEqual(times.filter(one => !one.includes("UTC")), []);
    const counted = page.getByRole("heading", {name: /^Since \d\d:\d\d:\d\d UTC$/}), before = await counted.textContent();
    // By keyboard alone, and nothing happens without a confirmation.
    await button(page, "Restart").focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", {name: "Restart orders?"}).waitFor();
    await looksRight(page, "a question");
    await page.keyboard.press("Escape");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Restart");
    await confirm(page, "Restart", "Restart", "It restarts.");
    await state(page, "Streaming");
    await confirm(page, "Pause", "Pause", "It pauses.");
    await state(page, "Paused");
    await confirm(page, "Resume", "Resume", "It resumes.");
    await state(page, "Streaming");

    await button(page, "Read a table again …").click();
    // A slip is told at once, with what to do.
    await page.locator("#dialog input[name=table]").fill("items");
    await button(page, "Read").click();
    await said(page).getByText("To do: did you mean public.items?").waitFor();
    await page.locator("#dialog input[name=table]").fill("public.items");
    await page.locator("#dialog input[name=where]").fill("id > 1");
    await looksRight(page, "a snapshot");
    await button(page, "Read").click();
    await said(page).getByText("It was asked for").waitFor();
    await page.keyboard.press("Escape");
    await button(page, "Notifications …").click();
    await page.locator("#dialog").getByText("Incremental Snapshot").first().waitFor();
    await page.keyboard.press("Escape");

    await button(page, "Configuration …").click();
    const text = page.getByLabel("As JSON"), save = button(page, "Save");
    await page.getByText("Nothing is wrong with it.").waitFor();
    const config = JSON.parse(await text.inputValue());
    await text.fill("{");
    await page.getByText("This is not JSON").waitFor();
    assert.ok(await save.isDisabled());
    await text.fill(JSON.stringify({...config, "snapshot.mode": "sometimes"}, null, 2));
    await page.locator("#problems").getByText("snapshot.mode").waitFor();
    assert.ok(await save.isDisabled());
    await looksRight(page, "a configuration with a problem");
    await text.fill(JSON.stringify({...config, "heartbeat.interval.ms": String(60000 + VIEWS.indexOf(view))}, null, 2));
    await page.getByText("Nothing is wrong with it.").waitFor();
    await save.click();
    await said(page).getByText("It is saved.").waitFor();
    await page.keyboard.press("Escape");
    await state(page, "Streaming");
    // Counts begin again with a new configuration, and the page says so.
    await page.waitForFunction(before => ![...document.querySelectorAll("h3")].some(one => one.textContent === before), before);
    await counted.waitFor();

    await button(page, "Offset …").click();
    await page.locator("#dialog pre").getByText("offsets").waitFor();
    await page.keyboard.press("Escape");
    await button(page, "Log …").click();
    await page.locator("#dialog pre.log").getByText("orders").waitFor();
    await page.keyboard.press("Escape");
    await confirm(page, "Stop", "Stop", "It stops.");
    await state(page, "Stopped");
    await confirm(page, "Resume", "Resume", "It resumes.");
    await state(page, "Streaming");
  },

  async skip(page, view) {
    await state(page, "Failed");
    const reason = await page.locator(".verdict .reason").textContent();
    await button(page, "Pass over this record …").click();
    await page.getByRole("dialog", {name: "Pass over one record of orders?"}).waitFor();
    await looksRight(page, "a record that is passed over");
    // Nothing happens without a confirmation.
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({state: "hidden"});
    await confirm(page, "Pass over this record …", "Pass over", "It is passed over. The connector starts again.");
    // The next one fails the connector again, and after the last one it goes on.
    const last = view === VIEWS[VIEWS.length - 1];
    await page.waitForFunction(([before, word]) => document.querySelector(".verdict .reason")?.textContent !== before
      && document.querySelector(".verdict .tag")?.textContent === word, [reason, last ? "Streaming" : "Failed"]);
  },

  async many(page) {
    await state(page, "Failed");
    const names = page.locator("nav.fleet b");
    assert.equal(await names.count(), 50);
    assert.equal(await names.first().textContent(), "zulu");
    assert.equal(await page.locator(".verdict h2").textContent(), "zulu");
    assert.match(await page.title(), /1 of 50 failed/);
    // Nobody has to go through the list by keyboard to reach what it is about.
    await page.getByRole("button", {name: "Skip the list"}).focus();
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "name");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Restart");
    await page.getByRole("heading", {name: /1 of 50 failed, 49 stopped/}).waitFor();
    assert.match(await page.locator("link[rel=icon]").getAttribute("href"), /b3261e/);
    await looksRight(page, "fifty connectors");
    await page.keyboard.press("/");
    await page.keyboard.type("stopped-3");
    await page.waitForFunction(() => document.querySelectorAll("nav.fleet b").length === 10);
    await page.getByRole("link", {name: /stopped-37/}).click();
    await page.locator(".verdict h2", {hasText: /^stopped-37$/}).waitFor();
    // What is typed and where the focus is outlast the page's own changes.
    await page.waitForResponse(/ui\/data/);
    assert.equal(await page.locator("#filter").inputValue(), "stopped-3");
    await page.locator("#filter").fill("no such name");
    await page.getByText("No connector has this text").waitFor();
  },

  /// Once is enough: nothing here depends on how the page is looked at.
  async attacked(page, view, url) {
    if (view !== VIEWS[0]) return;
    await page.locator(".verdict h2").waitFor();
    await namesRunNothing(page, url);
    await otherPagesDoNothing(page.context().browser(), url);
    await oddRequestsGetNothing(url);
  },

  /// The page of one worker shows the connectors of all. `arguments`: the address of each worker with the connectors that it owns, this worker first.
  async others(page, view, url, workers) {
    const names = Object.values(workers).flat(), [own, ...rest] = Object.keys(workers);
    await page.waitForFunction(count => document.querySelectorAll("nav.fleet b").length === count, names.length);
    const list = page.locator("nav.fleet li");
    for (const [address, owned] of Object.entries(workers)) for (const name of owned) {
      const line = await list.filter({has: page.locator("b", {hasText: new RegExp("^" + name + "$")})}).locator(".line").textContent();
      assert.equal(line.startsWith("On " + address + ". "), address !== own, line);
    }
    await page.locator("summary", {hasText: "3 workers share the connectors"}).click();
    for (const [address, owned] of Object.entries(workers)) {
      const row = page.locator("tbody tr", {has: page.locator("th", {hasText: address})});
      assert.equal(await row.locator("td").first().textContent(), owned.join(", "));
      assert.equal(await row.getByText("this one").count(), address === own ? 1 : 0, address);
    }
    assert.equal(await page.locator("tbody .tag", {hasText: "leads"}).count(), 1);
    await looksRight(page, "connectors of three workers");
    // One that runs elsewhere has its whole page here, and is operated from here.
    const [name] = workers[rest[0]];
    await page.locator("nav.fleet a", {has: page.locator("b", {hasText: new RegExp("^" + name + "$")})}).click();
    await page.locator(".verdict").getByText("Runs on the worker " + rest[0]).waitFor();
    await state(page, "Streaming");
    await page.getByText("Path of a change").waitFor();
    await confirm(page, "Pause", "Pause", "It pauses.");
    await state(page, "Paused");
    await confirm(page, "Resume", "Resume", "It resumes.");
    await state(page, "Streaming");
  },

  /// The last worker is gone, and the group does not know it yet.
  async gone(page, view, url, workers) {
    const dead = Object.keys(workers).pop();
    await page.waitForFunction(count => document.querySelectorAll("nav.fleet b").length === count, Object.values(workers).flat().length);
    await page.locator("summary", {hasText: "3 workers share the connectors"}).click();
    const row = page.locator("tbody tr", {has: page.locator("th", {hasText: dead})});
    await row.getByText("does not answer").waitFor();
    // Each is still listed: with what its deputy says, or with what is known without its worker.
    for (const name of workers[dead]) await page.locator("nav.fleet li", {has: page.locator("b", {hasText: new RegExp("^" + name + "$")})})
      .locator(".line", {hasText: /As a deputy|as the status topic says\. .*The worker does not say more/}).waitFor();
    await looksRight(page, "a worker that is gone");
  },

  /// Two workers have everything.
  async two(page, view, url, workers) {
    const names = Object.values(workers).flat(), [own, other, dead] = Object.keys(workers);
    await page.locator("summary", {hasText: "2 workers share the connectors"}).waitFor();
    await page.waitForFunction(([count, dead]) => document.querySelectorAll("nav.fleet b").length === count
      && ![...document.querySelectorAll("nav.fleet .line")].some(line => line.textContent.includes(dead))
      && [...document.querySelectorAll("nav.fleet .tag")].every(tag => tag.textContent === "Streaming"), [names.length, dead]);
    assert.ok(own && other);
  },

  async look(page) {
    await state(page, "Streaming");
    for (const name of ["Restart", "Pause", "Stop", "Read a table again …", "Log …"]) assert.equal(await button(page, name).count(), 0, name);
    await page.getByText("Your login may read but not change anything.").waitFor();
    await button(page, "Configuration …").click();
    await page.getByLabel("As JSON").waitFor();
    assert.equal(await button(page, "Save").count(), 0);
    await looksRight(page, "a reader's configuration");
  },
};

async function main([scenario, url, more]) {
  const browser = await chromium.launch({
    executablePath: process.env.WALFERRY_TEST_CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP evil.test 127.0.0.1"],
  });
  try {
    for (const view of VIEWS) {
      const context = await browser.newContext({...view, reducedMotion: "reduce", locale: "en-US", timezoneId: "America/New_York",
        httpCredentials: scenario === "look" ? {username: "reader", password: "secret"} : undefined});
      context.setDefaultTimeout(120_000);
      const page = await context.newPage(), problems = [];
      // A request that is refused, as one of `act` is, is an error for the browser.
      const isRefusal = message => scenario === "act" && /status of 400/.test(message.text());
      page.on("console", message => message.type() === "error" && !isRefusal(message) && problems.push(message.text()));
      page.on("pageerror", error => problems.push(error.message));
      await page.goto(url + "/ui");
      await SCENARIOS[scenario](page, view, url, more && JSON.parse(more));
      assert.deepEqual(problems, [], "what the browser's console says");
      await context.close();
    }
  } finally {
    await browser.close();
  }
}
main(process.argv.slice(2)).catch(error => { console.error(error); process.exit(1); });
