import { useSignal } from "@preact/signals";
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import { useEffect, useRef } from "preact/hooks";
import { describeError, type Api } from "../api.ts";
import type { App } from "../../../gen/svc/v1/app_pb.ts";
import { connectConsole, type ConsoleSession } from "../console-connection.ts";
import { Failure } from "../parts/failure.tsx";
import { ChoiceField } from "../parts/field.tsx";
import { plainText } from "../plain-text.ts";
import { texts } from "../texts.ts";
import { formatBytes } from "../units.ts";

const scrollback = 5_000;
/** Bytes of output between acknowledgements. The daemon sends at most 256 KiB ahead. */
const ackBytes = 32 * 1024;

interface Props {
  readonly api: Api;
  readonly app: Pick<App, "id" | "runtime">;
  readonly session: ConsoleSession;
  readonly onClose: () => void;
}

/** A terminal of an app. Its output can neither open links, set the clipboard nor change the title. */
export function TerminalView({ api, app: { id: appId, runtime }, session, onClose }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const end = useSignal("");
  const failure = useSignal("");
  const opened = useSignal(0);
  /** Services of a compose project; the first is selected by default. */
  const services = useSignal<readonly string[]>([]);
  const chosen = useSignal("");
  useEffect(() => {
    const at = box.current;
    if (at === null) return;
    const over = new AbortController();
    const { signal } = over;
    stylesAsSheets();
    const terminal = new Terminal({
      scrollback,
      fontSize: 13,
      screenReaderMode: true,
      // Links in untrusted output are not followed.
      linkHandler: { activate: () => undefined },
    });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.open(at);
    terminal.attachCustomKeyEventHandler(({ type, ctrlKey, shiftKey, code }) => {
      const leaves = ctrlKey && shiftKey && code === "KeyX";
      if (leaves && type === "keydown") document.getElementById("close-terminal")?.focus();
      return !leaves;
    });
    end.value = "";
    failure.value = "";
    let [shown, acknowledged] = [0, 0];
    const connect = async (): Promise<void> => {
      if (runtime === "compose") services.value = await runningServices(api, appId, signal);
      const service = chosen.value || services.value[0];
      const socket = await connectConsole(
        api,
        appId,
        { session, service },
        {
          data: (bytes) =>
            terminal.write(bytes, () => {
              shown += bytes.length;
              if (shown - acknowledged < ackBytes || socket.readyState !== socket.OPEN) return;
              acknowledged = shown;
              socket.send(JSON.stringify({ type: "ack", bytes: shown }));
            }),
          notice: (what) => {
            if (what.type === "opened") begin(socket);
            else if (what.type === "gap")
              terminal.write(`\r\n${texts.log.left(formatBytes(what.bytes))}\r\n`);
            else if (what.type === "exit") end.value = texts.terminal.ended(what.code);
            else failure.value = what.error;
          },
          closed: () => (end.value ||= texts.terminal.lost),
        },
        signal,
      );
    };
    const begin = (socket: WebSocket): void => {
      const encoder = new TextEncoder();
      const send = (data: Uint8Array<ArrayBuffer> | string): void => {
        if (socket.readyState === socket.OPEN) socket.send(data);
      };
      const resize = (): void =>
        send(JSON.stringify({ type: "resize", cols: terminal.cols, rows: terminal.rows }));
      terminal.onData((text) => send(encoder.encode(text)));
      terminal.onBinary((text) => send(Uint8Array.from(text, (character) => character.charCodeAt(0))));
      terminal.onResize(resize);
      fit.fit();
      resize();
      terminal.focus();
    };
    const sized = new ResizeObserver(() => fit.fit());
    sized.observe(at);
    connect().catch((error: unknown) => {
      if (!signal.aborted) failure.value = describeError(error);
    });
    return () => {
      over.abort();
      sized.disconnect();
      terminal.dispose();
    };
  }, [api, appId, runtime, session, chosen.value, opened.value]);
  return (
    <section class="card" aria-labelledby="terminal">
      <h2 id="terminal">{texts.terminal.title(session)}</h2>
      {services.value.length > 1 && (
        <ChoiceField
          label={texts.terminal.service}
          value={chosen.value || (services.value[0] ?? "")}
          onType={(service) => (chosen.value = service)}
          choices={services.value.map((name) => [name, plainText(name)] as const)}
        />
      )}
      <div class="console" ref={box} />
      <p class="quiet">{texts.terminal.leave}</p>
      <Failure message={failure.value} />
      <div class="row">
        <button type="button" id="close-terminal" onClick={onClose}>
          {texts.terminal.close}
        </button>
        {end.value !== "" && (
          <>
            <button type="button" onClick={() => opened.value++}>
              {texts.terminal.again}
            </button>
            <span role="status">{end.value}</span>
          </>
        )}
      </div>
    </section>
  );
}

type CreateElement = (name: string, options?: ElementCreationOptions) => HTMLElement;

/**
 * The terminal library adds style elements, which the page's content security policy rejects; they become
 * constructed style sheets instead.
 */
function stylesAsSheets(): void {
  if (Object.hasOwn(document, "createElement")) return;
  const original: CreateElement = Reflect.get(document, "createElement");
  const createElement: CreateElement = (name, options) => original.call(document, name, options);
  const create: CreateElement = (name, options) =>
    name === "style" ? sheetElement(createElement("span")) : createElement(name, options);
  Object.defineProperty(document, "createElement", { value: create, configurable: true });
}

function sheetElement(element: HTMLElement): HTMLElement {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  element.hidden = true;
  Object.defineProperties(element, {
    textContent: { set: (text: string) => sheet.replaceSync(text) },
    sheet: { get: () => sheet },
    remove: {
      value: () => {
        document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
        element.parentNode?.removeChild(element);
      },
    },
  });
  return element;
}

async function runningServices(api: Api, id: string, signal: AbortSignal): Promise<readonly string[]> {
  const { stacks } = await api.apps.listStacks({}, { signal });
  const services = stacks.find(({ appId }) => appId === id)?.services ?? [];
  return services.filter(({ state }) => state === "running").map(({ name }) => name);
}
