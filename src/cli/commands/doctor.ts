/** `svc doctor`: checks whether this host meets svc's requirements, and suggests fixes. */
import { join } from "node:path";
import type { Command } from "commander";
import type { NamedFinding } from "../../doctor/examine.ts";
import type { CommandContext } from "../context.ts";
import { exists } from "../exists.ts";
import { exitCodes } from "../output/exit-codes.ts";
import { ReportedError, UsageError } from "../output/failure.ts";
import type { SocketPaths } from "../host.ts";
import type { RunCommand } from "../run-command.ts";
import type { Color } from "../output/color.ts";
import { escapeControls } from "../output/escape.ts";
import { SvcError } from "../../errors.ts";
import { calls } from "../client/calls.ts";
import { chooseNode } from "../nodes/choose-node.ts";
import { SocketClient } from "../client/socket-client.ts";

const marks: Readonly<Record<NamedFinding["state"], [mark: string, color: Color]>> = {
  ok: ["ok", "green"],
  warning: ["warning", "yellow"],
  problem: ["problem", "red"],
};

export function addDoctorCommand(parent: Command, run: RunCommand): void {
  parent
    .command("doctor")
    .description("check this host for problems and suggest fixes; exits with 1 if there is a problem")
    .option(
      "--config <file>",
      "configuration file (default: the clone's, /etc/svc/svc.toml, or the user's own)",
    )
    .action(run(showFindings));
}

async function showFindings(context: CommandContext, options: { config?: string }): Promise<void> {
  const { host } = context;
  const socket = requireLocal(context);
  const configFile = options.config ?? (await configOf(context, socket));
  // Part of the daemon: loaded only for this command.
  const { examine } = await import("../../doctor/examine.ts");
  const findings = await examine({
    configFile,
    environment: { uid: host.uid, home: host.home, env: host.env },
    findDaemon: async (configured) => {
      const others = host.uid === 0 || options.config !== undefined ? [] : [host.sockets.system];
      for (const path of socket === undefined ? [configured, ...others] : [socket])
        if (await new SocketClient({ socketPath: path, headers: {} }).isAvailable()) return path;
      return undefined;
    },
    readListeners: async (socketPath) => {
      try {
        return (await new SocketClient({ socketPath, headers: {} }).call(calls.getStatus, {})).listeners;
      } catch (error) {
        // The other checks report why the daemon does not respond.
        if (error instanceof SvcError) return [];
        throw error;
      }
    },
  });
  if (context.json) await context.printJson({ findings });
  else await context.print(findings.map((finding) => lineOf(context, finding)).join(""));
  if (findings.some(({ state }) => state === "problem")) throw new ReportedError(exitCodes.failed);
}

/** The socket that the command line selects. @throws UsageError for a daemon on another host */
function requireLocal({ host, options }: CommandContext): string | undefined {
  const node = chooseNode(host, options);
  if (node === undefined) return options.socket;
  if (node.address.startsWith(unixScheme)) return node.address.slice(unixScheme.length);
  throw new UsageError(
    `svc doctor checks only this host, not ${node.name}: run it there, or check this host with --node local`,
  );
}

const unixScheme = "unix:";

/** The configuration of the daemon on a socket that was chosen. Default: that of the checkout. */
async function configOf(context: CommandContext, socket: string | undefined): Promise<string | undefined> {
  const { host } = context;
  if (socket === undefined) return checkoutConfig(host.sockets);
  const { mode, config_file: file } = await context.call(calls.getStatus, {});
  const [isSystem, isRoot] = [mode === "system", host.uid === 0];
  if (isSystem && !isRoot)
    throw new SvcError(
      "root_required",
      `the daemon on ${socket} is root's, so only root can check its files`,
    );
  if (!isSystem && isRoot)
    throw new SvcError(
      "not_possible",
      `the daemon on ${socket} is a user's, not root's: run svc doctor as that user`,
    );
  return exists(file) ? file : undefined;
}

/**
 * The configuration of the daemon that `npm start` runs, if there is one. All commands of a checkout prefer
 * that daemon.
 */
function checkoutConfig({ checkoutDir }: SocketPaths): string | undefined {
  if (checkoutDir === undefined) return undefined;
  const file = join(checkoutDir, "svc.toml");
  return exists(file) ? file : undefined;
}

function lineOf({ paint }: CommandContext, { check, state, text }: NamedFinding): string {
  const [mark, color] = marks[state];
  return `${paint(color, mark.padEnd(8))} ${check.padEnd(13)} ${escapeControls(text)}\n`;
}
