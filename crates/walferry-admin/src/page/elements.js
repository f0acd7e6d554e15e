"use strict";
// ---- words ------------------------------------------------------------------------------------------------------------
const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];
// The space before a unit is one at which no line breaks.
function bytes(n) {
  if (n == null) return "–";
  if (n < 1024) return n + "\u00a0bytes";
  let unit = 0;
  for (n /= 1024; n >= 1023.5 && unit < UNITS.length - 1; unit++) n /= 1024;
  return n.toFixed(n < 9.95 ? 1 : 0) + "\u00a0" + UNITS[unit];
}
function duration(s) {
  s = Math.max(0, s);
  if (s < 10) return (s < 0.05 ? "0" : s.toFixed(1)) + "\u00a0s";
  s = Math.round(s);
  if (s < 60) return s + "\u00a0s";
  if (s < 3600) return Math.floor(s / 60) + "\u00a0min";
  if (s < 86400) return Math.floor(s / 3600) + "\u00a0h" + (s % 3600 >= 60 ? "\u00a0" + Math.floor(s % 3600 / 60) + "\u00a0min" : "");
  const days = Math.floor(s / 86400);
  return days + (days === 1 ? "\u00a0day" : "\u00a0days");
}
function millis(ms) {
  if (ms == null) return "–";
  return ms < 1000 ? (ms < 9.95 ? ms.toFixed(1) : ms.toFixed(0)) + "\u00a0ms" : duration(ms / 1000);
}
const count = n => Math.round(n).toLocaleString("en-US");
const rate = n => (n > 0 && n < 9.95 ? n.toFixed(1) : count(n)) + "/s";
/// A time as Walferry's sentences have it: in UTC, with the date if it is another day than today.
const time = at => {
  if (at == null) return "–";
  const [day, clock] = new Date(at).toISOString().split("T");
  return (day === new Date().toISOString().slice(0, 10) ? "" : day + " ") + clock.slice(0, 8) + " UTC";
};
const plural = (n, word) => count(n) + " " + word + (n === 1 ? "" : "s");

/// What ends a line, turns the direction of text or shows nothing, as the log has it: a name with such a character would look like another one, or turn
/// the text around it.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]/g;
const escaped = unit => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0");
const readable = text => text.replace(HIDDEN, hidden => hidden.split("").map(escaped).join(""));

// ---- elements ---------------------------------------------------------------------------------------------------------
/// An element; attributes that start with "on" are handlers. Text never becomes markup, and is readable.
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element[name] = value; else element.setAttribute(name, value === true ? "" : value);
  }
  const shown = children.flat(Infinity).filter(child => child != null && child !== false);
  element.append(...shown.map(child => typeof child === "string" ? readable(child) : child));
  return element;
}
/// Makes `old` like `fresh` without replacing what stays, so that focus, selection and scrolling stay too.
function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) { old.replaceWith(fresh); return; }
  if (old.nodeType === Node.TEXT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
  for (const {name} of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const {name, value} of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const name of ["onclick", "oninput", "onpointermove", "onpointerleave"]) if (old[name] !== fresh[name]) old[name] = fresh[name];
  morphChildren(old, [...fresh.childNodes]);
}
/// Children with a `data-key` stay themselves when the order changes, and the one with the focus keeps it.
function morphChildren(parent, fresh) {
  const focused = document.activeElement, keyed = new Map();
  for (const node of parent.children) if (node.dataset.key) keyed.set(node.dataset.key, node);
  fresh.forEach((node, i) => {
    const own = node.dataset?.key && keyed.get(node.dataset.key), old = parent.childNodes[i];
    if (own && own !== old) parent.insertBefore(own, old);
    else if (node.dataset?.key && !own) { parent.insertBefore(node, old ?? null); return; }
    const place = parent.childNodes[i];
    if (place) morph(place, node); else parent.append(node);
  });
  [...parent.childNodes].slice(fresh.length).forEach(node => node.remove());
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus();
}
/// Text in which what stands between backticks is code.
const prose = text => text.split("`").map((part, i) => i % 2 ? h("code", null, part) : part);
const panel = (title, ...children) => h("section", {class: "panel"}, h("h3", null, title), children);
function copyable(text) {
  const copy = event => navigator.clipboard?.writeText(text).then(() => {
    event.target.textContent = "Copied";
    setTimeout(() => event.target.textContent = "Copy", 1500);
  });
  return h("div", {class: "sql"}, h("code", null, text),
    navigator.clipboard && h("button", {type: "button", onclick: copy, "aria-label": "Copy " + text}, "Copy"));
}


// ---- requests ---------------------------------------------------------------------------------------------------------
/// The REST API lies beside the page, also behind a proxy that adds a prefix.
const BASE = new URL(location.pathname.replace(/\/ui\/?$/, "/"), location.href);
/// Sends a request of the REST API and returns the answer's JSON, or `null`. What is refused is thrown with the server's words.
async function request(method, path, body) {
  const answer = await fetch(new URL(path, BASE), {
    method, cache: "no-store", signal: AbortSignal.timeout(30000), body: body == null ? null : JSON.stringify(body),
    headers: body == null ? {} : {"Content-Type": "application/json"},
  });
  const text = await answer.text();
  let json = null;
  try { json = text === "" ? null : JSON.parse(text); } catch { /* Not JSON: the error below shows the text. */ }
  const hints = (json?.obstacles ?? []).map(one => one.hint && "To do: " + one.hint + ".").filter(Boolean);
  if (!answer.ok) throw new Error([json?.message ?? (text.slice(0, 2000) || "HTTP " + answer.status), ...hints].join(" "));
  return json;
}
const at = (name, path) => "connectors/" + encodeURIComponent(name) + path;
