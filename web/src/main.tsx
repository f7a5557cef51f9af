// Entry: runs after the data is there, and replaces what stands in #vitrine.

import { render } from "preact";
import { Article } from "./article";
import "./base.css";
import { startLive } from "./live/start";
import "./page.css";
import { Report } from "./report/report";
import { startPrint } from "./print";
import { Study } from "./study/study";
import { startTheme } from "./theme";
import { startTip } from "./tip";

const root = document.getElementById("vitrine");
if (root === null) throw new Error("the page has no element with the id vitrine");
startTheme();
startTip();
startPrint();
root.replaceChildren();
const pages = { merge: <Report />, study: <Study /> };
const draw = () => render("kind" in window.vitrine ? pages[window.vitrine.kind] : <Article />, root);
draw();
startLive(draw);
root.dataset["ready"] = "true";
