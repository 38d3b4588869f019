/** Connects the user's terminal to a terminal of an app. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ConsoleInputSchema } from "../../gen/svc/v1/app_pb.ts";
import { exitCodes } from "./output/exit-codes.ts";
import type { CommandContext } from "./context.ts";

type ConsoleInput = MessageInitShape<typeof ConsoleInputSchema>;

export interface TerminalStart {
  readonly appId: string;
  readonly session: "attach" | "shell";
  readonly command: readonly string[];
  readonly service: string;
}

/** Ctrl-P Ctrl-Q, as in Docker. */
const detachKeys = Buffer.of(0x10, 0x11);

/** Limit in bytes for typed input that is not sent yet; input from a file is read as it is sent. */
const maxBufferedBytes = 2 ** 20;

/** Messages to the daemon: typed input, window sizes, and acknowledged output. */
class Inputs {
  readonly #waiting: ConsoleInput[] = [];
  readonly #onSpace: () => void;
  #waitingBytes = 0;
  #more = Promise.withResolvers<undefined>();
  #isOver = false;

  /** @param onSpace called when there is space again */
  constructor(onSpace: () => void) {
    this.#onSpace = onSpace;
  }

  hasSpace(): boolean {
    return this.#waitingBytes < maxBufferedBytes;
  }

  add(input: ConsoleInput): void {
    this.#waiting.push(input);
    this.#waitingBytes += input.data?.length ?? 0;
    this.#more.resolve(undefined);
  }

  end(): void {
    this.#isOver = true;
    this.#more.resolve(undefined);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ConsoleInput, void> {
    while (!this.#isOver) {
      const input = this.#waiting.shift();
      if (input === undefined) {
        this.#more = Promise.withResolvers();
        await this.#more.promise;
      } else {
        const hadSpace = this.hasSpace();
        this.#waitingBytes -= input.data?.length ?? 0;
        if (!hadSpace && this.hasSpace()) this.#onSpace();
        yield input;
      }
    }
  }
}

/** Runs until the program ends or the user detaches. @returns the program's exit code */
export async function runTerminal(context: CommandContext, start: TerminalStart): Promise<number> {
  const { AppService } = await import("../../gen/svc/v1/app_pb.ts");
  const { stdin, stdout, stderr } = context.host;
  const inputs = new Inputs(() => stdin.resume());
  const keys = new DetachKeys(inputs);
  const isTerminal = stdin.isTTY && stdout.isTTY === true;
  const resize = (): void => inputs.add({ resize: sizeOf(stdout) });
  const type = (bytes: Buffer): void => {
    keys.type(bytes, isTerminal);
    if (!inputs.hasSpace()) stdin.pause();
  };
  // Without a window, does not set the size of a terminal that others watch, too.
  const window = isTerminal ? { resize: sizeOf(stdout) } : { withoutTerminal: start.session === "shell" };
  inputs.add({ ...start, command: [...start.command], ...window });
  let shownBytes = 0;
  let exitCode: number | undefined;
  try {
    const outputs = context.invoke(AppService.method.attachConsole, inputs, keys.detached);
    for await (const { output } of outputs) {
      if (output.case === "opened") {
        const { recording } = output.value;
        if (recording !== "") context.note(`Recorded in ${start.appId}:${recording}`);
        if (isTerminal) {
          stdin.setRawMode?.(true);
          stdout.on("resize", resize);
        }
        stdin.on("data", type);
        stdin.once("end", () => inputs.add({ endOfInput: true }));
      } else if (output.case === "data") {
        await context.print(output.value);
        shownBytes += output.value.length;
        inputs.add({ ack: BigInt(shownBytes) });
      } else if (output.case === "errorData") {
        stderr.write(output.value);
        shownBytes += output.value.length;
        inputs.add({ ack: BigInt(shownBytes) });
      } else if (output.case === "gap") {
        stderr.write(`\r\n[${output.value.bytes} bytes skipped]\n`);
      } else if (output.case === "exit") {
        exitCode = output.value.code;
        inputs.end();
      }
    }
  } catch (error) {
    if (exitCode !== undefined) return exitCode;
    if (!keys.detached.aborted) throw error;
    stderr.write("\nDetached.\n");
    return exitCodes.ok;
  } finally {
    inputs.end();
    stdin.off("data", type);
    stdin.pause();
    if (isTerminal) {
      stdin.setRawMode?.(false);
      stdout.off("resize", resize);
    }
  }
  return exitCode ?? exitCodes.failed;
}

/** Detects the detach keys. */
class DetachKeys {
  readonly #inputs: Inputs;
  readonly #detached = new AbortController();
  #isPrefixPending = false;

  constructor(inputs: Inputs) {
    this.#inputs = inputs;
  }

  /** Aborts when the user detaches. */
  get detached(): AbortSignal {
    return this.#detached.signal;
  }

  /** @param isTerminal false for a file, whose content is passed unchanged */
  type(bytes: Buffer, isTerminal: boolean): void {
    const all = this.#isPrefixPending ? Buffer.concat([detachKeys.subarray(0, 1), bytes]) : bytes;
    const at = isTerminal ? all.indexOf(detachKeys) : -1;
    this.#isPrefixPending = isTerminal && at < 0 && all.at(-1) === detachKeys[0];
    const typed = at >= 0 ? all.subarray(0, at) : this.#isPrefixPending ? all.subarray(0, -1) : all;
    if (typed.length > 0) this.#inputs.add({ data: typed });
    if (at >= 0) this.#detached.abort();
  }
}

function sizeOf({ columns = 80, rows = 24 }: { columns?: number; rows?: number }) {
  const bound = (count: number): number => Math.min(Math.max(count, 1), 1_000);
  return { columns: bound(columns), rows: bound(rows) };
}
