// The start of the page that a server sends: its player and its controls, from what the server offers.

import { connectControls } from "specviz/controls/connect.js";
import { find } from "specviz/dom/dom.js";
import { mount } from "specviz/player.js";
import { greetHub } from "specviz/run/hub.js";
import { serverOf } from "specviz/run/server.js";

/** @type {Config} */
const config = JSON.parse(find(document, "#offer").textContent);
greetHub();
mount({ element: document.body, server: serverOf(config), config, connect: connectControls });
