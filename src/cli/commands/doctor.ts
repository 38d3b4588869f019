/** `svc doctor`: checks whether this host meets svc's requirements, and suggests fixes. */
import { join } from "node:path";
import type { Command } from "commander";
import type { NamedFinding } from "../../doctor/examine.ts";
import type { CommandContext } from "../context.ts";
import { exists } from "../exists.ts";
import { exitCodes } from "../output/exit-codes.ts";
import { ReportedError } from "../output/failure.ts";
import type { SocketPaths } from "../host.ts";
import type { RunCommand } from "../run-command.ts";
import type { Color } from "../output/color.ts";
import { escapeControls } from "../output/escape.ts";
import { SvcError } from "../../errors.ts";
import { calls } from "../client/calls.ts";
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
  // Part of the daemon: loaded only for this command.
  const { examine } = await import("../../doctor/examine.ts");
  const findings = await examine({
    configFile: options.config ?? checkoutConfig(host.sockets),
    environment: { uid: host.uid, home: host.home, env: host.env },
    findDaemon: async (configured) => {
      for (const path of [configured, ...(host.uid === 0 ? [] : [host.sockets.system])])
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
