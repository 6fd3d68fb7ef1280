// The page from a server: its player, its controls, and the connection between them. All of it is built from
// the server's offer.

import { Controls } from "specviz/controls/controls.js";
import { find, importPart } from "specviz/dom/dom.js";
import { mount } from "specviz/player.js";
import { usualTemperature } from "specviz/run/address.js";
import { drafterControl, keptDrafter } from "specviz/run/controls.js";
import { greetHub, serverOf } from "specviz/run/server.js";
import { signsIn } from "specviz/words/markdown.js";
import { promptHint, signsText } from "specviz/words/words.js";

const MODEL_FIELDS = ["pair", "target", "draft", "weights"];
const OTHER = "other"; // the pair whose models a visitor names

/** A unique name for this tab: a new run of the same tab replaces the previous one. */
function newTabName() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Make the controls and connect them with the page.
 * @param {PageParts} page
 */
function connectControls(page) {
  const { address, config, notice, server, shell } = page;
  const tab = newTabName();
  let lanesBefore = /** @type {Value} */ (address.settings.lanes ?? null);
  const controls = new Controls(config, {
    changed: (name) => changedByHand(name),
    chosen: (preset) => write({ prompt: preset.prompt, ...preset.settings }),
    run: () => run(),
    stop: () => server.stop?.({ session: tab }).catch(() => {}),
    modelNamed: () => examine(true),
  });
  let doctor = /** @type {Doctor | null} */ (null);
  const fetchedDoctor = notice.fetching(async () => {
    const { Doctor } = await importPart("controls/doctor.js");
    doctor = new Doctor(server);
    return doctor;
  });
  let namedDrafters = /** @type {string[] | null} */ (null); // of the models that a visitor names

  /** Update the page after a change of the controls. */
  function follow() {
    address.change({ values: controls.values });
    shell.summarise(address);
    shell.markSigns(signs());
    const { chat, pair } = controls.record;
    controls.hint = promptHint(config.pairs[String(pair)], chat);
    page.view.compareControls();
  }

  /** Set controls from code. @param {Record<string, Value>} values */
  function write(values) {
    const { pair } = controls.record;
    controls.write(values);
    offerDrafters(String(controls.record.drafter));
    lanesBefore = controls.record.lanes;
    if (controls.record.pair !== pair) doctor?.clear();
    follow();
  }

  /** Offer the pair's drafters; `wanted` stays chosen if it is one of them. @param {string | null} wanted */
  function offerDrafters(wanted) {
    const pair = String(controls.record.pair);
    const drafters = { ...config.drafters, [OTHER]: namedDrafters };
    const { choices, value } = drafterControl(pair, wanted, { ...config, drafters });
    controls.offer("drafter", choices, value);
  }

  /** @param {string} name */
  function changedByHand(name) {
    const { chosen } = address;
    if (name === "pair") {
      namedDrafters = null;
      // A newly chosen pair begins with its own drafter.
      offerDrafters(config.drafters[String(controls.record.pair)] ? null : String(controls.record.drafter));
    }
    if (name === "lanes") beginLanes();
    follow();
    // A visitor's own prompt begins with the pair's own drafter, not with the preset's.
    if (name === "prompt" && chosen && !address.preset) {
      const pair = String(controls.record.pair);
      const { gamma, gamma_policy: policy } = config.defaults;
      write({ gamma, gamma_policy: policy, drafter: config.drafters[pair]?.[0] ?? null });
    }
    if (name === "pair" || name === "weights") examine(true);
  }

  /** Set the usual temperature of the chosen lanes, unless the visitor has set another. */
  function beginLanes() {
    const { lanes, temperature } = controls.record;
    if (temperature === usualTemperature(lanesBefore, config)) {
      controls.write({ temperature: usualTemperature(lanes, config) });
    }
    lanesBefore = lanes;
  }

  /** Examine the chosen pair. @param {boolean} isByHand */
  async function examine(isByHand) {
    const { pair, target, draft, weights } = controls.record;
    if (pair === config.defaults.pair || (pair === OTHER && !target)) {
      doctor?.clear();
      return;
    }
    const examiner = await fetchedDoctor();
    if (!examiner || controls.record.pair !== pair) return;
    const before = examiner.examined;
    const report = await examiner.examine({ pair, target, draft, weights });
    if (!report) return;
    if (!isByHand && report.verdict !== "good") shell.openPanel();
    if ("error" in report) return;
    if (pair === OTHER) namedDrafters = report.drafters;
    examiner.examined = report.models;
    const drafter = String(controls.record.drafter);
    const { models } = report;
    offerDrafters(keptDrafter({ drafter, pair: String(pair), models, before, isByHand }));
    follow();
  }

  function signs() {
    return controls.record.chat === "literal" ? [] : signsIn(String(controls.record.prompt));
  }

  async function run() {
    shell.clearLanes();
    page.shownRun.beginWaiting();
    try {
      await server.run?.({ session: tab, ...controls.record }, {
        received: (delta) => page.shownRun.receive(delta),
        refused: (sentence) => page.shownRun.refuse(sentence),
      });
    } catch (error) { // `beginWaiting` tells the visitor if nothing comes
      console.info("specviz: a run could not begin:", error);
    }
  }

  page.controls = {
    write,
    get values() { return controls.values; },
    adopt(wanted) { write(recordOf(wanted, config)); },
    renew(before) {
      const { pair, prompt } = controls.record;
      const isUsual = pair === before;
      const choices = config.controls.find(({ name }) => name === "pair")?.choices ?? [];
      controls.offer("pair", choices, isUsual ? String(config.defaults.pair) : String(pair));
      if (!isUsual) return; // the visitor has chosen another pair
      const { drafter, gamma, gamma_policy } = config.defaults;
      const preset = config.presets.find((candidate) => candidate.prompt === prompt);
      write(preset?.settings ?? { drafter, gamma, gamma_policy });
    },
  };
  find(document, "#signs").addEventListener("click", () => notice.show(signsText(signs())));
  write(recordOf(address.state.values, config));
  const areModelsNamed = MODEL_FIELDS.some((name) => name in address.asked.settings);
  const isOtherPair = address.settings.pair !== config.defaults.pair;
  if (areModelsNamed && isOtherPair && !address.state.stage) examine(false);
}

/**
 * Values by the names of their controls.
 * @type {(values: Value[], config: Config) => Record<string, Value>}
 */
function recordOf([prompt, ...settings], config) {
  const names = Object.keys(config.defaults);
  const chosen = Object.fromEntries(names.map((name, i) => [name, settings[i] ?? null]));
  return { prompt: prompt ?? null, ...chosen };
}

/** @type {Config} */
const config = JSON.parse(find(document, "#offer").textContent);
greetHub();
mount({ element: document.body, server: serverOf(config), config, connect: connectControls });
