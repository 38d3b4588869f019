/** `svc web`: the daemon's page in a browser, as the user who asks for it. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { openInBrowser } from "../open-in-browser.ts";
import { parseCount } from "../option-values.ts";
import type { RunCommand } from "../run-command.ts";
import { escapeCell } from "../render/escape.ts";
import { calls } from "../transport/calls.ts";

/** The longest session, in seconds. */
const maxSecs = 43_200;

interface WebOptions {
  readonly ttl?: number;
  readonly open: boolean;
  readonly end?: boolean;
}

export function addWebCommand(parent: Command, run: RunCommand): void {
  parent
    .command("web")
    .description("print the address of the daemon's page, and open it where there is a browser")
    .option(
      "--ttl <seconds>",
      `how long the page may act as you, 1 to ${maxSecs} (default: ${maxSecs})`,
      parseCount(1, maxSecs, "seconds"),
    )
    .option("--no-open", "print the address only")
    .option("--end", "end all of your open pages instead")
    .addHelpText(
      "after",
      "\nThe address signs one browser in, once, within 30 seconds; the page then shows and does what you may.\n" +
        "For a machine elsewhere: ssh -L 8420:127.0.0.1:8420 MACHINE, and open what svc web prints there.\n",
    )
    .action(
      run((context, options: WebOptions) => (options.end === true ? end(context) : open(context, options))),
    );
}

async function open(context: CommandContext, { ttl, open: mayOpen }: WebOptions): Promise<void> {
  const grant = await context.call(calls.issueSessionCode, { ...(ttl !== undefined && { ttl_secs: ttl }) });
  if (context.json) return context.printJson(grant);
  const address = `${grant.page}#code=${grant.code}`;
  await context.print(`${escapeCell(address)}\n`);
  context.note("Open it within 30 seconds; it works once, and the page then acts as you.");
  if (mayOpen) await openInBrowser(context.host, address);
}

async function end(context: CommandContext): Promise<void> {
  const { ended } = await context.call(calls.endSessions, {});
  return context.tell({ ended }, `Ended ${ended === 1 ? "1 session" : `${ended} sessions`}`);
}
