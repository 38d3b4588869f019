import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { memo } from "preact/compat";
import { linesPerBlock, LogLines, type LogBlock } from "../log-lines.ts";
import { CheckField, bindCheckbox } from "../parts/field.tsx";
import { texts } from "../texts.ts";
import type { ViewProps } from "../view-props.ts";

/** An app's log. After an outage of the daemon it is opened again. */
export function LogView({ api, node, appId }: Pick<ViewProps, "api" | "node"> & { appId: string }) {
  const log = useSignal<LogLines | undefined>(undefined);
  const opened = useSignal(0);
  const wasLost = useRef(false);
  const connection = node.connection.value;
  useEffect(() => {
    if (connection === "live" && wasLost.current) opened.value++;
    wasLost.current = connection === "lost";
  }, [connection]);
  useEffect(() => {
    const lines = new LogLines(api, appId);
    log.value = lines;
    return () => lines.close();
  }, [api, appId, opened.value]);
  return (
    <section class="card" aria-labelledby="log">
      <h2 id="log">{texts.log.title}</h2>
      {log.value && <Lines log={log.value} appId={appId} />}
      {log.value?.end.value !== undefined && (
        <p class="notice">
          {log.value.end.value}{" "}
          <button type="button" onClick={() => opened.value++}>
            {texts.log.again}
          </button>
        </p>
      )}
    </section>
  );
}

function Lines({ log, appId }: { log: LogLines; appId: string }) {
  const filter = useSignal("");
  const follows = useSignal(true);
  const box = useRef<HTMLDivElement>(null);
  const blocks = log.blocks.value;
  const word = filter.value.toLowerCase();
  useEffect(() => {
    if (follows.value && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  });
  return (
    <>
      <div class="row">
        <input
          type="search"
          class="filter"
          aria-label={texts.log.filter}
          placeholder={texts.log.filter}
          value={filter.value}
          onInput={({ currentTarget }) => (filter.value = currentTarget.value)}
        />
        <CheckField label={texts.log.follow} {...bindCheckbox(follows)} />
      </div>
      <div class="log" ref={box} tabIndex={0} role="log" aria-live="off" aria-label={texts.log.label(appId)}>
        {blocks.length === 0 && <p class="quiet">{texts.log.empty}</p>}
        {blocks.length > 0 && !isFound(blocks, word) && <p class="quiet">{texts.log.noneFound}</p>}
        {blocks.map((block) => (
          <Block key={block.number} block={block} word={word} />
        ))}
      </div>
    </>
  );
}

function isFound(blocks: readonly LogBlock[], word: string): boolean {
  return blocks.some(({ lines }) => lines.some((line) => has(line, word)));
}

/** @param word in lower case; empty matches every line */
function has(line: string, word: string): boolean {
  return word === "" || line.toLowerCase().includes(word);
}

/** Rendered again only if the block or the filter changes; the browser paints only visible blocks. */
const Block = memo(({ block, word }: { block: LogBlock; word: string }) => (
  <div class={block.lines.length === linesPerBlock && word === "" ? "block full" : "block"}>
    {block.lines
      .filter((line) => has(line, word))
      .map((line, at) => (
        <div class="line" key={at} dir="auto">
          {line === "" ? " " : line}
        </div>
      ))}
  </div>
));
