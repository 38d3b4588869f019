/** `svc doctor`: whether this host is as svc needs it, and what to do where it is not. */
import { join } from "node:path";
import type { Command } from "commander";
import type { NamedFinding } from "../../doctor/examine.ts";
import type { CommandContext } from "../context.ts";
import { exists } from "../exists.ts";
import { exitCodes } from "../exit-codes.ts";
import { ReportedError } from "../failure.ts";
import type { SocketPaths } from "../host.ts";
import type { RunCommand } from "../run-command.ts";
import type { Color } from "../render/color.ts";
import { escapeControls } from "../render/escape.ts";
import { SocketClient } from "../transport/socket-client.ts";

const marks: Readonly<Record<NamedFinding["state"], [mark: string, color: Color]>> = {
  ok: ["ok", "green"],
  warning: ["warning", "yellow"],
  problem: ["problem", "red"],
};

export function addDoctorCommand(parent: Command, run: RunCommand): void {
  parent
    .command("doctor")
    .description("check what svc needs of this host, and say what to do; exits with 1 for a problem")
    .option(
      "--config <file>",
      "configuration file (default: the checkout's, /etc/svc/svc.toml, or the user's own)",
    )
    .action(run(showFindings));
}

async function showFindings(context: CommandContext, options: { config?: string }): Promise<void> {
  const { host } = context;
  // What it knows is the daemon's: loaded only for this.
  const { examine } = await import("../../doctor/examine.ts");
  const findings = await examine({
    configFile: options.config ?? checkoutConfig(host.sockets),
    environment: { uid: host.uid, home: host.home, env: host.env },
    findDaemon: async (configured) => {
      for (const path of [configured, ...(host.uid === 0 ? [] : [host.sockets.system])])
        if (await new SocketClient({ socketPath: path, headers: {} }).isThere()) return path;
      return undefined;
    },
  });
  if (context.json) await context.printJson({ findings });
  else await context.print(findings.map((finding) => lineOf(context, finding)).join(""));
  if (findings.some(({ state }) => state === "problem")) throw new ReportedError(exitCodes.failed);
}

/** Of the daemon that `npm start` has, where there is one: it comes before others for every command of the checkout. */
function checkoutConfig({ checkoutDir }: SocketPaths): string | undefined {
  if (checkoutDir === undefined) return undefined;
  const file = join(checkoutDir, "svc.toml");
  return exists(file) ? file : undefined;
}

function lineOf({ paint }: CommandContext, { check, state, text }: NamedFinding): string {
  const [mark, color] = marks[state];
  return `${paint(color, mark.padEnd(8))} ${check.padEnd(13)} ${escapeControls(text)}\n`;
}
