/** Runs the command line in this process with streams that record. */
import { join } from "node:path";
import { PassThrough, Writable } from "node:stream";
import { runCli } from "../../../src/cli/cli.ts";
import type { CliHost } from "../../../src/cli/host.ts";
import type { CliDependencies } from "../../../src/cli/run-command.ts";
import { programs } from "../../support/programs.ts";

export interface SvcRun {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface SvcOptions {
  readonly host?: Partial<CliHost>;
  readonly dependencies?: Partial<CliDependencies>;
  readonly terminal?: boolean;
}

class Recorder extends Writable {
  #bytes: Buffer[] = [];
  readonly isTTY: boolean;
  readonly columns = 80;

  constructor(isTTY: boolean) {
    super();
    this.isTTY = isTTY;
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#bytes.push(chunk);
    done();
  }

  get text(): string {
    return Buffer.concat(this.#bytes).toString();
  }
}

export async function runSvc(args: readonly string[], options: SvcOptions = {}): Promise<SvcRun> {
  const terminal = options.terminal ?? false;
  const stdout = new Recorder(terminal);
  const stderr = new Recorder(terminal);
  const exitCode = await runCli(
    {
      args,
      env: {},
      uid: 1000,
      home: "/nonexistent",
      root: "/nonexistent",
      stdin: Object.assign(new PassThrough(), { isTTY: terminal }),
      stdout,
      stderr,
      watchReader: () => Promise.resolve({ [Symbol.dispose]: () => undefined }),
      interrupted: new AbortController().signal,
      now: () => Date.parse("2026-01-02T00:00:00Z"),
      version: "1.2.3",
      program: {
        command: ["/usr/bin/svc"],
        unitsDir: "/nonexistent",
        docsDir: join(import.meta.dirname, "../../../docs"),
        settingsThread: () => Promise.resolve(programs.settingsThread),
      },
      sockets: { checkoutDir: undefined, system: "/nonexistent/system", user: "/nonexistent/user" },
      stores: { system: "/nonexistent/system", user: "/nonexistent/user" },
      ...options.host,
    },
    {
      openInProcess: () => Promise.reject(new Error("in-process")),
      runDaemon: () => Promise.reject(new Error("daemon")),
      ...options.dependencies,
    },
  );
  return { exitCode, stdout: stdout.text, stderr: stderr.text };
}
