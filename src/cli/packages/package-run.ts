/** Runs a package in a separate temporary daemon and store, so that nothing is installed. */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { SvcError } from "../../errors.ts";
import { acceptedBy, type AcceptOptions } from "../input/accept-license.ts";
import { showAppLogs } from "../logs/app-logs.ts";
import { readAssignments, type Assignments } from "../input/assignments.ts";
import { installWithQuestions } from "../commands/install.ts";
import type { CommandContext } from "../context.ts";
import { asSvcError } from "../output/failure.ts";
import { defaultTail } from "../logs/logs.ts";
import { portsText } from "../output/app-table.ts";
import { calls } from "../client/calls.ts";
import { SocketClient } from "../client/socket-client.ts";

export interface PackageRunOptions extends AcceptOptions, Omit<Assignments, "pairs"> {
  readonly set?: readonly string[];
}

const startTimeoutMs = 30_000;
const endTimeoutMs = 30_000;

export async function runPackage(
  context: CommandContext,
  dir: string,
  options: PackageRunOptions,
): Promise<void> {
  const settingTexts = await readAssignments(context, { ...options, pairs: options.set });
  const scratch = await mkdtemp(join(tmpdir(), "svc-package-"));
  const daemon = await startDaemon(context, scratch);
  try {
    await using daemonContext = context.on(daemon.socket);
    const app = await installWithQuestions(daemonContext, {
      ...{ spec: dir, source: "", name: "", branch: "", tag: "", settingTexts },
      ...acceptedBy(options),
    });
    await daemonContext.call(calls.startApp, { id: app.id });
    const ports = app.ports.length > 0 ? ` on port ${portsText(app.ports)}` : "";
    daemonContext.note(`${app.id} ${app.version} runs${ports}. Press Ctrl-C to stop and remove it.`);
    await showAppLogs(daemonContext, [app.id], { tail: defaultTail, follow: true });
  } catch (error) {
    // Ctrl-C is the normal end.
    if (!context.host.interrupted.aborted) throw error;
  } finally {
    if (context.host.interrupted.aborted) context.note("Stopping, and removing the app.");
    try {
      await end(context, daemon);
    } finally {
      await rm(scratch, { recursive: true, force: true });
    }
  }
}

interface ScratchDaemon {
  readonly socket: string;
  readonly child: ChildProcess;
}

async function startDaemon(context: CommandContext, scratch: string): Promise<ScratchDaemon> {
  const { host } = context;
  const socket = join(scratch, "svc.sock");
  const config = join(scratch, "svc.toml");
  const log = join(scratch, "daemon.log");
  const lines = ["[api]", 'listen = "127.0.0.1:0"', `socket = ${JSON.stringify(socket)}`];
  await writeFile(
    config,
    [...lines, "[store]", `dir = ${JSON.stringify(join(scratch, "store"))}`, ""].join("\n"),
  );
  const [program = "", ...args] = host.program.command;
  await using output = await open(log, "w");
  // In a separate session: Ctrl-C should reach only this process, which cleans up first.
  const child = spawn(program, [...args, "daemon", "--config", config], {
    stdio: ["ignore", output.fd, output.fd],
    detached: true,
    env: host.env,
  });
  child.on("error", () => undefined);
  const deadline = performance.now() + startTimeoutMs;
  const client = new SocketClient({ socketPath: socket, headers: {} });
  while (!(await client.isAvailable())) {
    const isOver = child.pid === undefined || child.exitCode !== null || performance.now() > deadline;
    if (isOver || host.interrupted.aborted) {
      const output = await readFile(log, "utf8").catch(() => "");
      await endProcess(child);
      await rm(scratch, { recursive: true, force: true });
      context.throwIfInterrupted();
      throw new SvcError("internal", `could not start a temporary daemon: ${output.trim().slice(-2_000)}`);
    }
    await wait(50);
  }
  return { socket, child };
}

/** Removes installed apps first: their processes and containers outlive a daemon. */
async function end(context: CommandContext, { socket, child }: ScratchDaemon): Promise<void> {
  try {
    await using daemonContext = context.on(socket, AbortSignal.timeout(2 * endTimeoutMs));
    await removeApps(daemonContext);
  } finally {
    await endProcess(child);
  }
}

/** @throws SvcError if the removal fails; `app_busy` if an operation still runs after {@link endTimeoutMs} */
async function removeApps(daemonContext: CommandContext): Promise<void> {
  const deadline = performance.now() + endTimeoutMs;
  for (;;) {
    const { apps } = await daemonContext.call(calls.listApps, {});
    if (apps.length === 0) return;
    for (const { id } of apps) {
      try {
        await daemonContext.call(calls.removeApp, { id });
      } catch (error) {
        // An install that Ctrl-C canceled is being undone.
        const isUndone = ["app_busy", "not_found"].includes(asSvcError(error)?.reason ?? "");
        if (!isUndone || performance.now() > deadline) throw error;
      }
    }
    await wait(50);
  }
}

async function endProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  const isEnded = await Promise.race([ended.then(() => true), wait(endTimeoutMs, false, { ref: false })]);
  if (!isEnded) child.kill("SIGKILL");
  await ended;
}
