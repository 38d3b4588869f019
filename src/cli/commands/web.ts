/** `svc web`: opens the daemon's web page, signed in as the calling user. */
import { Option, type Command } from "commander";
import { tunnelTo } from "../app-url.ts";
import type { CommandContext } from "../context.ts";
import { parseDuration } from "../input/option-values.ts";
import type { RunCommand } from "../run-command.ts";
import { escapeCell } from "../output/escape.ts";
import { calls } from "../client/calls.ts";

/** The longest session, in seconds. */
const maxSecs = 43_200;

interface WebOptions {
  readonly ttl?: number;
  readonly open: boolean;
  readonly print?: boolean;
  readonly end?: boolean;
}

export function addWebCommand(parent: Command, run: RunCommand): void {
  parent
    .command("web")
    .description("print the address of the daemon's web page, and open it in a browser if there is one")
    .option(
      "--ttl <time>",
      "how long the page may act as you, such as 90s or 10m, at most 12h (default: 12h)",
      parseDuration(1, maxSecs),
    )
    .option("--no-open", "print the address only")
    // As svc open has it.
    .addOption(new Option("--print").hideHelp())
    .option("--end", "sign out all your open pages instead")
    .addHelpText(
      "after",
      "\nThe address works once, within 30 seconds. The page then has your permissions.\n" +
        "For a remote machine: ssh -L 8420:127.0.0.1:8420 MACHINE, and open what svc web prints there.\n",
    )
    .action(
      run((context, options: WebOptions) =>
        options.end === true
          ? end(context)
          : openWebPage(context, { ...options, open: options.open && options.print !== true }),
      ),
    );
}

/** Prints the address of the page, and opens it if allowed. */
export async function openWebPage(
  context: CommandContext,
  { ttl, open: mayOpen }: Pick<WebOptions, "ttl" | "open">,
): Promise<void> {
  const grant = await context.call(calls.issueSessionCode, { ...(ttl !== undefined && { ttl_secs: ttl }) });
  if (context.json) return context.printJson(grant);
  const address = `${grant.page}#code=${grant.code}`;
  await context.print(`${escapeCell(address)}\n`);
  const port = Number(URL.parse(grant.page)?.port);
  const tunnel = port > 0 ? await tunnelTo(context, port) : undefined;
  if (tunnel !== undefined)
    context.note(`The page listens only on ${tunnel.node} itself. First: ${tunnel.command}`);
  context.note("Open the address within 30 seconds. It works once, and the page then has your permissions.");
  if (!mayOpen || tunnel !== undefined) return;
  const { openInBrowser } = await import("../open-in-browser.ts");
  await openInBrowser(context.host, address);
}

async function end(context: CommandContext): Promise<void> {
  const { ended } = await context.call(calls.endSessions, {});
  return context.printResult({ ended }, `Ended ${ended === 1 ? "1 session" : `${ended} sessions`}`);
}
