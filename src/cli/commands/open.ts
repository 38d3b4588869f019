/** `svc open`: opens an app, or the web page, in a browser. */
import type { Command } from "commander";
import { portsText } from "../output/app-table.ts";
import { tunnelToApp, urlOf } from "../app-url.ts";
import { calls } from "../client/calls.ts";
import type { CommandContext } from "../context.ts";
import { examples } from "../examples.ts";
import { escapeCell } from "../output/escape.ts";
import { AdvisedError } from "../output/failure.ts";
import { SvcError } from "../../errors.ts";
import type { RunCommand } from "../run-command.ts";
import { openWebPage } from "./web.ts";

interface OpenOptions {
  readonly print?: boolean;
}

export function addOpenCommand(parent: Command, run: RunCommand): void {
  parent
    .command("open")
    .description("open an app in a browser, or the web page without an ID, and print the address")
    .argument("[id]", "the app")
    .option("--print", "print the address only")
    .addHelpText("after", examples("svc open hello", "svc open hello --print", "svc open"))
    .action(run(open));
}

async function open(
  context: CommandContext,
  id: string | undefined,
  { print = false }: OpenOptions,
): Promise<void> {
  if (id === undefined) return openWebPage(context, { open: !print });
  const app = await context.call(calls.getApp, { id });
  const tunnel = await tunnelToApp(context, app);
  const url = tunnel?.url ?? (await urlOf(context, app));
  if (url === undefined) throw noAddress(app);
  if (context.json) return context.printJson({ id: app.id, url });
  await context.print(`${escapeCell(url)}\n`);
  if (tunnel !== undefined)
    context.note(`${app.id} listens only on ${tunnel.node} itself. First: ${tunnel.command}`);
  if (print || tunnel !== undefined) return;
  const { openInBrowser } = await import("../open-in-browser.ts");
  await openInBrowser(context.host, url);
}

function noAddress({ id, state, ports }: Parameters<typeof urlOf>[1]): SvcError {
  if (state !== "RUNNING") return new SvcError("app_not_running", `app "${id}" is not running`);
  const has = ports.length === 0 ? "the app has no ports" : `the app has only port ${portsText(ports)}`;
  return new AdvisedError(new SvcError("not_possible", ""), `app "${id}" has no web address: ${has}`);
}
