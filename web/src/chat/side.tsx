// The conversations, and the settings of the one that is read.

import { useRef, useState } from "preact/hooks";
import { Choice, Fold } from "../controls";
import { saveFile } from "../save";
import { begin, bringIn, discard, open } from "./actions";
import { exported } from "./keep";
import { fields, moreFields, type Field } from "./settings";
import { put, state, useApp } from "./state";
import type { Conversation } from "./tree";

export function Side({ one, onChosen }: { one: Conversation; onChosen: () => void }) {
  const { all, current, served } = useApp();
  const file = useRef<HTMLInputElement>(null);
  const kept = all.filter((other) => other.messages.length > 0);
  return (
    <>
      <button
        type="button"
        class="strong"
        onClick={() => {
          begin();
          onChosen();
        }}
      >New conversation</button>
      {kept.length > 0 && (
        <>
          <h2>Conversations</h2>
          <ul class="conversations">
            {kept.map((other) => (
              <li key={other.id} class={other.id === current ? "chosen" : undefined}>
                <button
                  type="button"
                  class="plain title"
                  {...(other.id === current ? { "aria-current": "true" as const } : {})}
                  onClick={() => {
                    open(other.id);
                    onChosen();
                  }}
                ><bdi>{other.title}</bdi></button>
                <button type="button" class="plain" aria-label={`Delete “${other.title}”`} onClick={() => confirm(`Delete “${other.title}”? It is kept nowhere else.`) && discard(other.id)}>×</button>
              </li>
            ))}
          </ul>
        </>
      )}
      <div class="row">
        {kept.length > 0 && <button type="button" onClick={() => saveFile("conversations.json", new Blob([exported(state().all.filter((other) => other.messages.length > 0))], { type: "application/json" }))}>Export</button>}
        <button type="button" onClick={() => file.current?.click()}>Import</button>
        <input
          ref={file}
          type="file"
          accept=".json,application/json"
          hidden
          aria-label="File of conversations"
          onChange={(event) => {
            const chosen = event.currentTarget.files?.[0];
            if (chosen !== undefined) void bringIn(chosen);
            event.currentTarget.value = "";
          }}
        />
      </div>
      <p class="remark">Kept in this browser alone.</p>
      <p><a href="explain">A walk through this model</a></p>
      <h2>Settings</h2>
      {served?.chat === true && one.messages.length === 0 && (
        <Choice label="Mode" options={[{ value: "chat", name: "Chat" }, { value: "text", name: "Text" }]} value={one.mode} onChange={(mode) => put({ ...one, mode })} />
      )}
      {one.mode === "chat" && (
        <label class="system">
          <span>System prompt</span>
          <textarea rows={3} value={one.system} onChange={(event) => put({ ...one, system: event.currentTarget.value })} />
        </label>
      )}
      <Fold summary="Sampling" class="sampling">{() => <Sampling one={one} />}</Fold>
    </>
  );
}

function Sampling({ one }: { one: Conversation }) {
  return (
    <>
      <p class="remark">Where nothing is set: temperature 1, at most 512 tokens, the rest off.</p>
      <Settings one={one} fields={fields} />
      <Fold summary="More rules" class="sampling">{() => <Settings one={one} fields={moreFields} />}</Fold>
    </>
  );
}

function Settings({ one, fields }: { one: Conversation; fields: readonly Field[] }) {
  return (
    <>
      {fields.map((field) => <Setting key={field.key} field={field} value={one.settings[field.key] ?? null} onChange={(value) => put({ ...one, settings: { ...one.settings, [field.key]: value } })} />)}
    </>
  );
}

/** What is outside its range is not taken, and says so. */
function Setting({ field: { key, label, min, max, step, note }, value, onChange }: { field: Field; value: number | null; onChange: (value: number | null) => void }) {
  const [wrong, set] = useState("");
  return (
    <div class="field">
      <label for={`set-${key}`}>{label}</label>
      <input
        id={`set-${key}`}
        type="number"
        min={min}
        max={max}
        step={step}
        inputMode={step === 1 ? "numeric" : "decimal"}
        value={value ?? ""}
        aria-describedby={`note-${key}`}
        aria-invalid={wrong !== ""}
        onChange={(event) => {
          const { validity, validationMessage, value: text } = event.currentTarget;
          set(validity.valid ? "" : validationMessage);
          if (validity.valid) onChange(text === "" ? null : Number(text));
        }}
      />
      <small id={`note-${key}`} class={wrong === "" ? undefined : "wrong"}>{wrong === "" ? note : wrong}</small>
    </div>
  );
}
