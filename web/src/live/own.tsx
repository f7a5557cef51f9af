// The reader's own model: a GGUF file that is chosen, or dropped on the page, takes the place of the page's model.

import { useEffect, useState } from "preact/hooks";
import { bytes } from "../format";
import { openModel } from "./actions";
import { quoted } from "./engine";
import { useLive } from "./state";

/** What WebAssembly can address is 4 GiB; what the runs need comes beside the weights. */
const mostBytes = 2 * 1024 ** 3;

/** What is wrong with a file before it is opened; null: nothing. */
async function refusal(file: File): Promise<string | null> {
  let begin: ArrayBuffer;
  try {
    begin = await file.slice(0, 4).arrayBuffer();
  } catch (error) {  // of a folder, or of a file that is gone
    return `${file.name} cannot be read: ${error instanceof Error ? error.message : String(error)} Give a GGUF file, not a folder.`;
  }
  if (new TextDecoder("latin1").decode(begin) !== "GGUF") return `${file.name} is not a GGUF file: it does not begin with the letters GGUF. The program makes one of a folder with safetensors: vitrine convert FOLDER model.gguf --dtype q8_0`;
  if (file.size > mostBytes) return `${file.name} takes ${bytes(file.size)}, and a page can hold ${bytes(mostBytes)} of weights, because WebAssembly addresses 4 GiB in all. Take a smaller type, such as Q4_K_M, or a smaller model; the program itself has no such limit: vitrine explain "…" --model ${quoted(file.name)}`;
  return null;
}

export function OwnModel() {
  const engine = useLive((now) => now.engine);
  const [file, choose] = useState<File | null>(null);
  const [said, say] = useState("");
  const [opening, setOpening] = useState(false);
  const able = engine !== null && engine.other !== null;
  const take = async (given: File) => {
    if (opening) return;
    const wrong = await refusal(given);
    choose(wrong === null ? given : null);
    say(wrong ?? "");
    document.getElementById("own-model")?.scrollIntoView({ block: "center" });
  };
  useEffect(() => {
    if (!able) return;
    const over = (event: DragEvent) => event.dataTransfer?.types.includes("Files") === true && event.preventDefault();
    const drop = (event: DragEvent) => {
      const given = event.dataTransfer?.files[0];
      if (given === undefined) return;
      event.preventDefault();
      void take(given);
    };
    document.addEventListener("dragover", over);
    document.addEventListener("drop", drop);
    return () => {
      document.removeEventListener("dragover", over);
      document.removeEventListener("drop", drop);
    };
  }, [able, opening]);
  if (!able) return null;
  const open = async (given: File) => {
    setOpening(true);
    say(`${given.name} is read, and the prompt runs through it …`);
    try {
      await openModel(given);
      say(`The page now runs ${given.name}.`);
    } catch (error) {
      say(`${given.name} cannot be opened, and the page goes on with its model. ${error instanceof Error ? error.message : String(error)}`);
    }
    choose(null);
    setOpening(false);
  };
  return (
    <section id="own-model" aria-labelledby="heading-own-model">
      <h2 id="heading-own-model">Your own model</h2>
      <p>This page can run another model: drop a GGUF file on it, or choose one. The file is read in this browser and sent nowhere. Files to try are those of GPT-2, SmolLM2, Gemma 3 270M or Qwen 3 0.6B, up to {bytes(mostBytes)}.</p>
      <p class="own-choose"><label>GGUF file <input type="file" accept=".gguf" disabled={opening} onChange={(event) => {
        const given = event.currentTarget.files?.[0];
        if (given !== undefined) void take(given);
        event.currentTarget.value = "";
      }} /></label></p>
      {file !== null && !opening && (
        <div class="own-ask">
          <p>{file.name} has {bytes(file.size)}. The weights stay in their type, so the page will hold as much memory, and beside it what the runs need. The prompt stays; changes of the model do not.</p>
          <button type="button" onClick={() => void open(file)}>Open {file.name}</button>{" "}
          <button type="button" onClick={() => choose(null)}>Leave it</button>
        </div>
      )}
      <p role="status">{said}</p>
    </section>
  );
}
