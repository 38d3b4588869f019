/** `svc events`: what happened on the node, and what happens. */
import { Option, type Command } from "commander";
import type { Event as EventMessage } from "../../../gen/svc/v1/event_pb.ts";
import { EventKinds } from "../../../gen/svc/v1/words.ts";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../failure.ts";
import { collect } from "../option-values.ts";
import type { RunCommand } from "../run-command.ts";
import { escapeCell } from "../render/escape.ts";
import { inLocalTime } from "../render/instant.ts";
import type { Event } from "../transport/calls.ts";

interface EventsOptions {
  readonly follow?: boolean;
  readonly after?: string;
  readonly app?: string;
  readonly kind: readonly string[];
}

export function addEventsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("events")
    .description("print what happened here in the last hour; with --follow, what happens, until Ctrl-C")
    .option("-f, --follow", "print what happens from now on")
    .option("--after <cursor>", "begin behind this event, as its `cursor` says in --json")
    .option("--app <app>", "only of this app")
    .addOption(
      new Option(
        "--kind <kind>",
        "only of this kind, such as app.crashed, or of all such as app; repeat for more",
      )
        .argParser(collect)
        .default([], "all"),
    )
    .addHelpText(
      "after",
      `\nKinds:\n  ${EventKinds.join(", ")
        .replace(/(.{1,90})(, |$)/g, "$1$2\n  ")
        .trimEnd()}\n` +
        "\nExamples:\n  svc events\n  svc events --follow --app hello\n  svc events -f --kind app.crashed --kind backup.failed\n",
    )
    .action(run(showEvents));
}

async function showEvents(context: CommandContext, options: EventsOptions): Promise<void> {
  const { EventService } = await import("../../../gen/svc/v1/event_pb.ts");
  const { follow = false, after = "", app: appId = "", kind } = options;
  // With or without what is behind the dot.
  const known = new Set(EventKinds.flatMap((each) => [each, each.replace(/\..*/, "")]));
  for (const each of kind)
    if (!known.has(each))
      throw new UsageError(`there is no kind "${each}"; there are ${EventKinds.join(", ")}`);
  const chosen = { appId, kinds: [...kind] };
  if (follow) return followEvents(context, chosen, after);
  const request = { ...chosen, after, past: after === "", untilNow: true };
  for await (const event of context.invoke(EventService.method.streamEvents, [request]))
    await printEvent(context, event);
}

async function followEvents(
  context: CommandContext,
  chosen: { readonly appId: string; readonly kinds: string[] },
  after: string,
): Promise<void> {
  const { EventService } = await import("../../../gen/svc/v1/event_pb.ts");
  let start = { after, past: false };
  for (let isOver = false; !isOver;) {
    isOver = true;
    for await (const event of context.follow(EventService.method.streamEvents, () => ({
      ...chosen,
      ...start,
    }))) {
      await printEvent(context, event);
      // What is held now, as by a daemon that has just begun, is all later than what was seen.
      isOver = event.kind !== "reset";
      start = isOver ? { after: event.cursor, past: false } : { after: "", past: true };
      if (!isOver) break;
    }
  }
}

async function printEvent(context: CommandContext, message: EventMessage): Promise<void> {
  const { EventSchema } = await import("../../../gen/svc/v1/event_pb.ts");
  const { messageToRest } = await import("../transport/rest-json.ts");
  const event = messageToRest(EventSchema, message);
  if (context.json) await context.printJsonLine(event);
  else if (event.kind !== "begin") await context.print(eventLine(context, event));
}

/** `2026-03-29 03:00:00 +02:00  app.crashed        hello  CRASHED  it exited with code 1` */
function eventLine({ paint }: CommandContext, event: Event): string {
  const { time, kind, app_id: appId, subject, state, message } = event;
  const at = time === undefined ? "" : inLocalTime(Date.parse(time));
  const told = kind === "reset" ? "some events may be missing before this one" : message;
  const parts = [kind.padEnd(17), appId, subject === appId ? "" : subject, state, told];
  const words = parts.filter((part) => part !== "").map(escapeCell);
  return `${paint("dim", at)}  ${words.join("  ").trimEnd()}\n`;
}
