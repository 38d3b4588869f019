/** Attack programs that run as the attacking user. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { nextEvent } from "../support/eventually.ts";

export interface Attacker extends AsyncDisposable {
  readonly pid: number;
  /** Resolves with its next output. */
  nextLine(): Promise<string>;
  /** Sends a line to its standard input, and resolves with its next output. */
  ask(line: string): Promise<string>;
}

/** @param program file in this directory; it exits when its standard input closes */
export function attackAs(uid: number, program: string, argument: object = {}): Attacker {
  const file = fileURLToPath(new URL(program, import.meta.url));
  const identity = [`--reuid=${uid}`, `--regid=${uid}`, "--clear-groups", "--"];
  const child = spawn("setpriv", [...identity, process.execPath, file, JSON.stringify(argument)], {
    cwd: "/",
    stdio: ["pipe", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  const nextLine = async (): Promise<string> => String((await nextEvent(child.stdout, "data"))[0]).trim();
  return {
    pid: child.pid ?? 0,
    nextLine,
    ask: (line) => {
      child.stdin.write(`${line}\n`);
      return nextLine();
    },
    async [Symbol.asyncDispose]() {
      child.stdin.end();
      await exited;
    },
  };
}
