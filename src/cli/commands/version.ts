/** `svc version`: the versions of this program and of the daemon. */
import type { Command } from "commander";
import { calls } from "../client/calls.ts";
import type { CommandContext } from "../context.ts";
import type { RunCommand } from "../run-command.ts";

type Status = { readonly version: string; readonly hostname: string };

export function addVersionCommand(parent: Command, run: RunCommand): void {
  parent
    .command("version")
    .description("show the versions of this program and of the daemon")
    .action(run(showVersions));
}

async function showVersions(context: CommandContext): Promise<void> {
  const { version } = context.host;
  const daemon = await daemonVersion(context);
  if (context.json) return context.printJson({ version, daemon_version: daemon?.version });
  return context.printFields([
    ["Program", `svc ${version}`],
    ["Daemon", daemon === undefined ? "not running" : `svc ${daemon.version} on ${daemon.hostname}`],
  ]);
}

/** @returns undefined if no daemon responds */
async function daemonVersion(context: CommandContext): Promise<Status | undefined> {
  const client = await context.client();
  const isThere = (await client.isAvailable(context.host.interrupted)) && (await client.outlives());
  return isThere ? context.call(calls.getStatus, {}) : undefined;
}
