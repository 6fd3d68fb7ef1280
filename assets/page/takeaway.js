// The menu "Take away": the shown run as a page of its own, as tables, and its charts as pictures.

import { chartFigure } from "./charts.js";
import { element } from "./lane.js";
import { fileStem, saveBlob } from "./recordings.js";

const FORMS = [
  ["html", "Page that plays offline (.html)", "text/html"],
  ["tokens", "Tokens as a table (.csv)", "text/csv"],
  ["rounds", "Rounds as a table (.csv)", "text/csv"],
];
const PICTURES = ["png", "svg"];
const SIZE = { width: 640, height: 400, scale: 2 }; // px; a PNG has `scale` times as many
const FAILED = "The server could not make this file; try again.";

/**
 * `trace()` is the shown trace; `charts` a promise that charts can be drawn; `fail(sentence)` is
 * told if a file cannot be made.
 */
export function createTakeaway(root, { server, config, trace, charts, fail }) {
  const menu = root.querySelector("[data-takeaway]");
  const list = menu.querySelector("div");
  if (server.take_away) {
    for (const [form, label, type] of FORMS) list.append(item(label, () => takeForm(form, type), form));
    list.append(element("hr"));
  }
  list.append(...Object.entries(config.titles).map(chartRow));

  function item(label, take, name) {
    const button = element("button", "", label);
    button.type = "button";
    button.dataset.take = name;
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        await take();
        menu.open = false;
      } catch (error) {
        console.info("specviz: nothing to take away:", error);
        fail(FAILED);
      }
      button.disabled = false;
    });
    return button;
  }

  function chartRow([name, title]) {
    const row = element("div", "sv-take-chart");
    row.append(element("span", "", title));
    for (const format of PICTURES) {
      const button = item(format.toUpperCase(), () => takeChart(name, title, format), `${name}.${format}`);
      button.setAttribute("aria-label", `${title}, ${format.toUpperCase()}`);
      row.append(button);
    }
    return row;
  }

  async function takeForm(form, type) {
    const { schema, header, rounds, end } = trace();
    const answer = await server.take_away({ form, trace: JSON.stringify({ schema, header, rounds, end }) });
    if (answer.error) fail(answer.error);
    else saveBlob(new Blob([answer.text], { type: `${type};charset=utf-8` }), `${fileStem(header)}${answer.suffix}`);
  }

  async function takeChart(name, title, format) {
    const figure = chartFigure(config, name, title, trace().rounds);
    const url = await window.Plotly.toImage(figure, { format, ...SIZE });
    saveBlob(await (await fetch(url)).blob(), `${fileStem(trace().header)}-${name}.${format}`);
  }

  function offer() {
    for (const button of list.querySelectorAll("button")) button.disabled = !trace();
    for (const button of list.querySelectorAll(".sv-take-chart button")) {
      button.disabled ||= !window.Plotly;
    }
  }
  menu.addEventListener("toggle", offer);
  charts.then(offer);
  document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });

  return {
    close() {
      const wasOpen = menu.open;
      if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
      menu.open = false;
      return wasOpen;
    },
  };
}
