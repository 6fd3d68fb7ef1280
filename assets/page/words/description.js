// What a run is, in words: models, drafter, rule and settings, from its header.

import { drafterKind, labelIn, verdictKind } from "specviz/facts/vocabulary.js";
import { changedLanes, ruleOf } from "specviz/words/rules.js";
import { sourceItems } from "specviz/words/watched.js";
import { askedIn, fixed, plural, quoted } from "specviz/words/words.js";

/**
 * One thing that the strip says: the field, the words, and more of them for those who point at it.
 * @typedef {{ name: string, text: string, title?: string, isInexact?: boolean }} Item
 */

export const SERVER = "server"; // the form of a target whose distributions come over a network
const PER_REQUEST = "The target is on a server: times are those of requests, with the network, the server's queue and "
  + "its other users. The ratio is per request, and says nothing of the server's own speed.";
const STREAM = "The server's own greedy stream in one request, measured from this machine before the race. Its "
  + "other users are in it too.";
const WHOLE = "In the target’s chat template the models read:";
const TRANSLATED = "The draft has a tokenizer of its own. Greedy drafts are translated as text; sampled ones are held to "
  + "the tokens that both have.";

/**
 * What is said of a target on a server: how it is timed, and how fast it is by itself.
 * @param {number | null} [rate] tokens per second of its own stream
 * @returns {Item[]}
 */
function served(rate) {
  /** @type {Item[]} */
  const items = [{ name: "server", text: "on a server, timed per request", title: PER_REQUEST }];
  if (rate) items.push({ name: "stream", text: `streams ${fixed(rate, rate < 100 ? 1 : 0)} tokens/s by itself`, title: STREAM });
  return items;
}

/**
 * What a run is, in the order in which it is said.
 * @param {Header} header
 * @returns {Item[]}
 */
export function describe(header) {
  const { target, draft, drafts, lanes, memory, settings, streaming_rate: rate } = header, prompt = promptItem(header);
  if (header.source) {
    return [prompt, { name: "target", text: `${target.name} ${size(target)}` },
      ...sourceItems(header), ...sharedItems(settings).filter(({ name }) => name !== "chat")];
  }
  if (lanes) return describeSeveral(prompt, { target, drafts, lanes, settings, streaming_rate: rate });
  const { drafter, gamma, gamma_policy: policy } = settings;
  /** @type {Item[]} */
  const items = [prompt, { name: "target", text: `${target.name} ${size(target)}`, title: titleOf(target) }];
  if (target.form === SERVER) items.push(...served(rate));
  if (draft) {
    const name = draft.name.replace(/^.*, layers (.+)$/, "its layers $1,");
    items.push({ name: "draft", text: `+ ${name} ${size(draft)}`, title: titleOf(draft) });
  }
  if (draft?.shared) {
    items.push({ name: "shared", text: `${draft.shared.toLocaleString("en")} shared tokens`, title: TRANSLATED });
  }
  if (memory) {
    const title = `${plural(memory.tokens, "token")} of earlier texts, from which drafts may come`;
    items.push({ name: "memory", text: `+ ${plural(memory.texts, "earlier text")}`, title });
  }
  if (drafter !== "model") items.push({ name: "drafter", text: settingText("drafter", drafter) });
  if (drafter !== "none") items.push({ name: "gamma", text: settingText("gamma", gamma) });
  if (drafter !== "none" && policy !== "fixed") {
    items.push({ name: "gamma_policy", text: settingText("gamma_policy", policy) });
  }
  const rule = ruleOf(settings);
  if (drafter !== "none" && rule !== "token") {
    const { exact, warning } = verdictKind(rule), said = settingText("verdict", rule);
    items.push(exact ? { name: "verdict", text: said }
      : { name: "verdict", text: `${said}: changes the text`, title: warning, isInexact: true });
  }
  return [...items, ...sharedItems(settings)];
}

/**
 * What was asked or begun; of a question, the whole text that the models read too.
 * @param {Header} header
 * @returns {Item}
 */
function promptItem(header) {
  const isAsked = header.question != null;
  return { name: "prompt", text: quoted(askedIn(header)), title: isAsked ? `${WHOLE}\n\n${header.prompt}` : header.prompt };
}

/**
 * The same of lanes with names of their own, which say what differs.
 * @param {Item} prompt
 * @param {Pick<Header, "target" | "drafts" | "settings" | "streaming_rate"> & { lanes: Record<LaneName, Settings> }} header
 * @returns {Item[]}
 */
function describeSeveral(prompt, { target, drafts, lanes, settings, streaming_rate: rate }) {
  const draft = Object.values(drafts ?? {}).find((one) => one && !one.name.includes(", layers "));
  const gammas = new Set(Object.values(lanes).map(({ gamma }) => gamma));
  /** @type {Item[]} */
  const items = [prompt, { name: "target", text: `${target.name} ${size(target)}`, title: titleOf(target) }];
  if (target.form === SERVER) items.push(...served(rate));
  if (draft) items.push({ name: "draft", text: `+ ${draft.name} ${size(draft)}`, title: titleOf(draft) });
  const names = Object.keys(lanes);
  items.push({ name: "lanes", text: plural(names.length, "lane") + " with drafts", title: names.join("\n") });
  if (gammas.size === 1) items.push({ name: "gamma", text: settingText("gamma", settings.gamma) });
  const rules = new Set(Object.values(lanes).map(ruleOf)), changed = changedLanes({ lanes });
  const [rule] = rules;
  if (changed.length) {
    const whose = changed.length === names.length ? "in all lanes with drafts" : `in ${changed.join("; ")}`;
    const rule = ruleOf(lanes[changed[0]]), text = `${settingText("verdict", rule)} ${whose}: changes the text`;
    items.push({ name: "verdict", text, title: verdictKind(rule).warning, isInexact: true });
  } else if (rules.size === 1 && rule !== "token") items.push({ name: "verdict", text: settingText("verdict", rule) });
  return [...items, ...sharedItems(settings)];
}

/**
 * What all lanes of a run have in common.
 * @param {Settings} settings
 * @returns {Item[]}
 */
function sharedItems(settings) {
  const { stop } = settings;
  /** @type {Item[]} */
  const items = [];
  items.push({ name: "temperature", text: settingText("temperature", settings.temperature) });
  if (settings.top_k > 0) items.push({ name: "top_k", text: settingText("top_k", settings.top_k) });
  if (settings.top_p < 1) items.push({ name: "top_p", text: settingText("top_p", settings.top_p) });
  items.push({ name: "seed", text: settingText("seed", settings.seed) },
    { name: "max_new_tokens", text: settingText("max_new_tokens", settings.max_new_tokens) });
  if (settings.chat !== undefined && settings.chat !== "auto") {
    items.push({ name: "chat", text: settingText("chat", settings.chat) });
  }
  if (stop.length) items.push({ name: "stop", text: plural(stop.length, "stop string"), title: stop.join("\n") });
  if (settings.ignore_eos) items.push({ name: "ignore_eos", text: "end of text ignored" });
  return items;
}

/**
 * A setting as the strip says it.
 * @param {string} name
 * @param {Value} value
 */
export function settingText(name, value) {
  switch (name) {
    case "drafter": return drafterKind(String(value)).label;
    case "gamma": return `γ ${value}`;
    case "gamma_policy": return `${labelIn("policies", String(value))} γ`;
    case "temperature": return value === 0 ? "greedy" : `T ${value}`;
    case "top_k": return value === 0 ? "top-k off" : `top-k ${value}`;
    case "top_p": return value === 1 ? "top-p off" : `top-p ${value}`;
    case "max_new_tokens": return plural(Number(value), "token");
    case "lanes": return labelIn("compared", String(value));
    case "chat": return `chat template ${value}`;
    case "verdict": return `${verdictKind(String(value)).label} verdict`;
    case "weights": return `${value} weights`;
    default: return `${name} ${value}`;
  }
}

/** @param {Model} model */
function size({ parameters }) {
  if (!parameters) return "";
  const [count, unit] = parameters >= 1e9 ? [parameters / 1e9, "B"] : [parameters / 1e6, "M"];
  return `${count >= 99.5 ? Math.round(count) : count.toFixed(1)} ${unit}`;
}

/** @param {Model} model */
function titleOf({ name, parameters, form, revision }) {
  if (form === SERVER) return `${name}: ${PER_REQUEST}`;
  return `${name}: ${parameters.toLocaleString("en")} parameters, ${form} engine${revision ? `, ${revision}` : ""}`;
}
