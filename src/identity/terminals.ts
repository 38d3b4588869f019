/** Programs at terminals, each a process of its own with its user's identity; see `terminal-parent.sh`. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import type { Writable } from "node:stream";
import { constants } from "node:os";
import { setTimeout as wait } from "node:timers/promises";
import { SvcError } from "../errors.ts";
import { keepInheritedDescriptors } from "../lib/pipe.ts";
import { type Pty, loadPtys } from "../lib/pty.mjs";
import type { Terminal, TerminalPiece, TerminalSize } from "../lib/terminal.ts";
import type { ExpectedIdentity } from "./helper/verify.mjs";
import type { Launch } from "./launch.ts";
import { statusLines } from "./status-lines.ts";

export interface TerminalProgram {
  /** The program, looked up in PATH, and its arguments. */
  readonly argv: readonly string[];
  /** Absolute; entered with the user's identity. */
  readonly cwd: string;
  /** Added to the clean base environment. */
  readonly env: Readonly<Record<string, string>>;
  readonly size: TerminalSize;
}

/** How long after the program's end others may go on printing. */
const drainMs = 300;
/** From the hang-up to SIGKILL. */
const hangUpMs = 2_000;

export class Terminals {
  readonly #parentPath: string;
  #openPty: ReturnType<typeof loadPtys> | undefined;

  /** @param parentPath of `terminal-parent.sh`, readable by every user */
  constructor(parentPath: string) {
    this.#parentPath = parentPath;
  }

  /**
   * @param launch makes what starts a program as the user
   * @throws SvcError `unavailable` when it cannot be started
   */
  async open(
    expected: ExpectedIdentity,
    { argv, cwd, env, size }: TerminalProgram,
    launch: (argv: readonly string[]) => Promise<Launch>,
  ): Promise<Terminal> {
    this.#openPty ??= prepare();
    const pty = this.#openPty(expected, size);
    try {
      const parent = ["/bin/sh", this.#parentPath, ...statusLines(expected), "."];
      const program = await launch([...parent, pty.path, cwd, ...argv]);
      const child = spawn(program.command, program.args, {
        cwd: "/",
        env: program.env,
        // What goes wrong before its program runs shows there, too.
        stdio: [pty.farFd, pty.farFd, pty.farFd, "pipe"],
        detached: true,
      });
      await once(child, "spawn");
      const variables = child.stdio[3] as Writable;
      variables.on("error", () => undefined);
      variables.end(exports(env));
      return new ProgramTerminal(pty, child);
    } catch (cause) {
      pty[Symbol.dispose]();
      if (cause instanceof SvcError) throw cause;
      throw new SvcError("unavailable", `no terminal could be opened: ${String(cause)}`, {
        cause,
      });
    }
  }
}

function prepare(): ReturnType<typeof loadPtys> {
  keepInheritedDescriptors();
  return loadPtys();
}

/** Commands for a shell. */
function exports(env: Readonly<Record<string, string>>): string {
  const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
  return Object.entries(env)
    .filter(([name]) => /^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
    .map(([name, value]) => `export ${name}=${quoted(value)}\n`)
    .join("");
}

/** End of transmission, ^D: as much of a closed input as a terminal knows. */
const endOfInput = Uint8Array.of(4);

async function* shown(pty: Pty): AsyncGenerator<TerminalPiece, void> {
  for await (const data of pty.read()) yield { data };
}

class ProgramTerminal implements Terminal {
  readonly output: AsyncIterable<TerminalPiece>;
  readonly exitCode: Promise<number>;
  readonly #pty: Pty;
  readonly #child: ChildProcess;
  readonly #gone = new AbortController();

  constructor(pty: Pty, child: ChildProcess) {
    this.#pty = pty;
    this.#child = child;
    this.output = shown(pty);
    this.exitCode = once(child, "exit").then(async ([code, signal]) => {
      this.#gone.abort();
      // Not before: a program that closes its own ends first, as cat does, would be hung up on while it exits.
      pty.closeFar();
      await wait(drainMs);
      pty[Symbol.dispose]();
      return (code as number | null) ?? 128 + constants.signals[signal as NodeJS.Signals];
    });
  }

  write(bytes: Uint8Array): Promise<void> {
    return this.#pty.write(bytes, this.#gone.signal);
  }

  endInput(): Promise<void> {
    return this.write(endOfInput);
  }

  resize(size: TerminalSize): void {
    this.#pty.resize(size);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#gone.abort();
    this.#pty[Symbol.dispose]();
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), hangUpMs);
    await this.exitCode;
    clearTimeout(timer);
  }
}
