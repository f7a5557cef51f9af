// Entry of the page that `vitrine serve` gives at `/`.

import { render } from "preact";
import "../base.css";
import "./chat.css";
import { startTheme } from "../theme";
import { startTip } from "../tip";
import { connect } from "./actions";
import { App } from "./app";
import { startKeeping } from "./state";

const root = document.getElementById("vitrine");
if (root === null) throw new Error("the page has no element with the id vitrine");
startTheme();
startTip();
startKeeping();
root.replaceChildren();
render(<App />, root);
root.dataset["ready"] = "true";
void connect();
