// The description of a run in words: models, drafter, rule and settings, from its header.

import { changedLanes, isSeveral, ruleOf } from "specviz/facts/lanes.js";
import { drafterKind, labelIn, verdictKind } from "specviz/facts/vocabulary.js";
import { sourceItems } from "specviz/words/watched.js";
import { askedIn, fixed, grouped, plural, quoted } from "specviz/words/words.js";

/**
 * One item of the strip: the field, its words, and a longer text as tooltip.
 * @typedef {{ name: string, text: string, title?: string, isInexact?: boolean }} Item
 */

export const SERVER = "server"; // the form of a target whose distributions come over a network
const PER_REQUEST = "The target is on a server: times are those of requests and include the network, the "
  + "server's queue and its other users. The ratio is per request, and says nothing about the server's own "
  + "speed.";
const STREAM = "The server's own greedy stream in one request, measured from this machine before the race. "
  + "It includes the load of other users.";
const WHOLE = "With the target’s chat template the models read:";
const TRANSLATED = "The draft has its own tokenizer. Greedy drafts are translated as text; sampled drafts "
  + "use only the tokens that both have.";

// The target; if it is on a server, also how it is timed and how fast it streams.
/** @type {(header: Header) => Item[]} */
function targetItems({ target, streaming_rate: rate }) {
  /** @type {Item[]} */
  const items = [{ name: "target", text: `${target.name} ${size(target)}`, title: titleOf(target) }];
  if (target.form !== SERVER) return items;
  items.push({ name: "server", text: "on a server, timed per request", title: PER_REQUEST });
  if (rate) {
    const figure = fixed(rate, rate < 100 ? 1 : 0);
    items.push({ name: "stream", text: `streams ${figure} tokens/s on its own`, title: STREAM });
  }
  return items;
}

/** The description of a run, in the strip's order. @type {(header: Header) => Item[]} */
export function describe(header) {
  const { target, settings } = header;
  const prompt = promptItem(header);
  const shared = sharedItems(settings);
  if (header.source) {
    const watched = { name: "target", text: `${target.name} ${size(target)}` };
    return [prompt, watched, ...sourceItems(header), ...shared.filter(({ name }) => name !== "chat")];
  }
  const guessing = isSeveral(header) ? several(header) : single(header);
  return [prompt, ...targetItems(header), ...guessing, ...shared];
}

// The draft model, the target's own first layers, or the head that comes with the target.
/** @type {(draft: Model, target: Model, drafter: string) => Item} */
function draftItem(draft, target, drafter) {
  const isOwn = /head/.test(drafter) && target.name.toLowerCase().startsWith(draft.name.toLowerCase());
  const name = isOwn ? "its head" : draft.name.replace(/^.*, layers (.+)$/, "its layers $1,");
  return { name: "draft", text: `+ ${name} ${size(draft)}`, title: titleOf(draft) };
}

/** The drafting of the one lane with drafts. @type {(header: Header) => Item[]} */
function single({ target, draft, memory, settings }) {
  const { drafter, gamma, gamma_policy: policy } = settings;
  const rule = ruleOf(settings);
  const items = /** @type {Item[]} */ ([]);
  if (draft) items.push(draftItem(draft, target, drafter));
  if (draft?.shared) {
    const text = `${grouped(draft.shared)} shared tokens`;
    items.push({ name: "shared", text, title: TRANSLATED });
  }
  if (memory) {
    const title = `${plural(memory.tokens, "token")} of earlier texts that drafts may be copied from`;
    items.push({ name: "memory", text: `+ ${plural(memory.texts, "earlier text")}`, title });
  }
  if (drafter !== "model") items.push(itemOf("drafter", drafter));
  if (drafter === "none") return items;
  items.push(itemOf("gamma", gamma));
  if (policy !== "fixed") items.push(itemOf("gamma_policy", policy));
  if (rule !== "token") items.push(verdictKind(rule).exact ? itemOf("verdict", rule) : changedBy(rule));
  return items;
}

/** A rule that is not exact. @type {(rule: string, whose?: string) => Item} */
const changedBy = (rule, whose = "") => ({
  name: "verdict",
  text: `${settingText("verdict", rule)}${whose}: changes the text`,
  title: verdictKind(rule).warning,
  isInexact: true,
});

// The question or the prompt, with the whole text that the models read as tooltip.
/** @type {(header: Header) => Item} */
function promptItem(header) {
  const isAsked = header.question != null;
  const { messages } = header;
  const behind = messages ? `, the last of ${messages.length} turns` : "";
  return {
    name: "prompt",
    text: quoted(askedIn(header)) + behind,
    title: isAsked ? `${WHOLE}\n\n${header.prompt}` : header.prompt,
  };
}

// The same for named lanes, whose names say what differs.
/** @type {(header: Header) => Item[]} */
function several({ target, drafts, lanes, settings }) {
  const isModel = (/** @type {Model | null} */ draft) => draft !== null && !draft.name.includes(", layers ");
  const [lane, draft] = Object.entries(drafts).find(([, draft]) => isModel(draft)) ?? [];
  const names = Object.keys(lanes);
  const each = Object.values(lanes);
  const changed = changedLanes({ lanes });
  /** @type {Item[]} */
  const items = lane && draft ? [draftItem(draft, target, lanes[lane].drafter)] : [];
  items.push({ name: "lanes", text: plural(names.length, "lane") + " with drafts", title: names.join("\n") });
  if (new Set(each.map(({ gamma }) => gamma)).size === 1) items.push(itemOf("gamma", settings.gamma));
  const rules = new Set(each.map(ruleOf));
  const [rule] = rules;
  if (changed.length) {
    const whose = changed.length === names.length ? "in all lanes with drafts" : `in ${changed.join("; ")}`;
    items.push(changedBy(ruleOf(lanes[changed[0]]), ` ${whose}`));
  } else if (rules.size === 1 && rule !== "token") items.push(itemOf("verdict", rule));
  return items;
}

/** The settings that all lanes share. @type {(settings: Settings) => Item[]} */
function sharedItems(settings) {
  const { stop, temperature, top_k, top_p, seed, max_new_tokens, chat = "auto", ignore_eos } = settings;
  const items = [itemOf("temperature", temperature)];
  if (top_k > 0) items.push(itemOf("top_k", top_k));
  if (top_p < 1) items.push(itemOf("top_p", top_p));
  items.push(itemOf("seed", seed), itemOf("max_new_tokens", max_new_tokens));
  if (chat !== "auto") items.push(itemOf("chat", chat));
  if (stop.length) {
    items.push({ name: "stop", text: plural(stop.length, "stop string"), title: stop.join("\n") });
  }
  if (ignore_eos) items.push({ name: "ignore_eos", text: "end of text ignored" });
  return items;
}

/** @type {(name: string, value: Value) => Item} */
const itemOf = (name, value) => ({ name, text: settingText(name, value) });

/** A setting in the words of the strip. @type {(name: string, value: Value) => string} */
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
    case "chat": return value === "literal" ? "no special tokens" : `chat template ${value}`;
    case "verdict": return `${verdictKind(String(value)).label} verdict`;
    case "weights": return `${value} weights`;
    default: return `${name} ${value}`;
  }
}

/** @param {Model} model */
function size({ parameters }) {
  if (!parameters) return "";
  const [count, unit] = parameters >= 1e9 ? [parameters / 1e9, "B"] : [parameters / 1e6, "M"];
  if (count >= 99.5) return `${Math.round(count)} ${unit}`;
  return `${count.toFixed(1)} ${unit}`;
}

/** @param {Model} model */
function titleOf({ name, parameters, form, revision }) {
  if (form === SERVER) return `${name}: ${PER_REQUEST}`;
  const engine = `${grouped(parameters)} parameters, ${form} engine`;
  return revision ? `${name}: ${engine}, ${revision}` : `${name}: ${engine}`;
}
