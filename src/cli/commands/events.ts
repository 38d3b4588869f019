/** `svc events`: past and live events of the node. */
import { Option, type Command } from "commander";
import type { Event as EventMessage } from "../../../gen/svc/v1/event_pb.ts";
import { AppOperationKinds, EventKinds } from "../../../gen/svc/v1/values.ts";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import { collect, parseMoment, type Moment } from "../input/option-values.ts";
import type { RunCommand } from "../run-command.ts";
import { escapeCell } from "../output/escape.ts";
import { inLocalTime } from "../output/instant.ts";
import { calls, type Event } from "../client/calls.ts";

interface EventsOptions {
  readonly follow?: boolean;
  readonly after?: string;
  readonly app?: string;
  readonly kind: readonly string[];
  readonly since?: Moment;
  readonly verbose?: boolean;
}

/** Kinds of events that only show steps and details of others. */
const detailKinds: ReadonlySet<string> = new Set([
  ...["app.busy", "app.changed", "app.detail", "app.starting", "app.stopping"],
  ...["operation.changed", "container.changed"],
]);
const appOperations: ReadonlySet<string> = new Set(AppOperationKinds);

export function addEventsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("events")
    .description("print the events of the last hour; with --follow, new events until Ctrl-C")
    .argument("[app]", "only events of this app")
    .option("-f, --follow", "print new events")
    .addOption(
      new Option("--since <when>", "only events since this time: an age such as 10m, or a time")
        .argParser(parseMoment)
        .conflicts("after"),
    )
    .option("--after <cursor>", "start after this event: its `cursor` in --json")
    .option("--app <app>", "the same as the argument")
    .addOption(
      new Option("--kind <kind>", "only events of this kind, such as app.crashed or app; repeat for more")
        .argParser(collect)
        .default([], "all, without the details that --verbose adds"),
    )
    .option("-v, --verbose", "also print steps of operations, and changes of details")
    .addHelpText(
      "after",
      `\nKinds:\n  ${EventKinds.join(", ")
        .replace(/(.{1,90})(, |$)/g, "$1$2\n  ")
        .trimEnd()}\n` +
        "\noperation.started and operation.finished are about an operation that svc operations lists. The other kinds of app\n" +
        "and operation are about an app. reset means that some earlier events may be missing.\n" +
        "\nExamples:\n  svc events\n  svc events --since 10m\n  svc events hello --follow --verbose\n  svc events -f --kind app.crashed --kind backup.failed\n",
    )
    .action(run(showEvents));
}

async function showEvents(
  context: CommandContext,
  named: string | undefined,
  options: EventsOptions,
): Promise<void> {
  const { EventService } = await import("../../../gen/svc/v1/event_pb.ts");
  const { follow = false, after = "", app = named, kind, since, verbose = false } = options;
  if (named !== undefined && app !== named) throw new UsageError("name one app, or pass --app");
  // Full kinds, and their prefixes before the dot.
  const known = new Set(EventKinds.flatMap((each) => [each, each.replace(/\..*/, "")]));
  for (const each of kind)
    if (!known.has(each))
      throw new UsageError(`unknown kind "${each}"; use one of: ${EventKinds.join(", ")}`);
  const chosen = { appId: app ?? "", kinds: [...kind] };
  const sinceMs = since?.(context.host.now());
  const isAll = context.json || verbose || kind.length > 0;
  const isShown = (event: EventMessage): boolean => isSince(event, sinceMs) && (isAll || !isDetail(event));
  if (follow) return followEvents(context, chosen, { after, past: sinceMs !== undefined, isShown });
  const request = { ...chosen, after, past: after === "", untilNow: true };
  let [areNone, areNoneShown] = [true, true];
  for await (const event of context.invoke(EventService.method.streamEvents, [request])) {
    areNone &&= event.kind === "begin";
    if (!isShown(event)) continue;
    areNoneShown &&= event.kind === "begin";
    await printEvent(context, event);
  }
  // A removed app may still have events.
  if (areNone && app !== undefined) await context.call(calls.getApp, { id: app });
  if (areNoneShown && !context.json)
    context.note("No such events yet; the daemon stores those of the last hour.");
}

async function followEvents(
  context: CommandContext,
  chosen: { readonly appId: string; readonly kinds: string[] },
  {
    isShown,
    ...first
  }: {
    readonly after: string;
    readonly past: boolean;
    readonly isShown: (event: EventMessage) => boolean;
  },
): Promise<void> {
  const { EventService } = await import("../../../gen/svc/v1/event_pb.ts");
  let start = first;
  for (let isOver = false; !isOver;) {
    isOver = true;
    for await (const event of context.follow(EventService.method.streamEvents, () => ({
      ...chosen,
      ...start,
    }))) {
      if (isShown(event)) await printEvent(context, event);
      // After a reset, such as a daemon restart, all events that the daemon has are new.
      isOver = event.kind !== "reset";
      start = isOver ? { after: event.cursor, past: false } : { after: "", past: true };
      if (!isOver) break;
    }
  }
}

/** Filters here, because the method has no start time: the daemon stores only the newest events. */
function isSince({ time }: EventMessage, sinceMs: number | undefined): boolean {
  if (sinceMs === undefined || time === undefined) return true;
  return Number(time.seconds) * 1_000 + time.nanos / 1_000_000 >= sinceMs;
}

/**
 * Whether other events show the same. The start and the success of most operations are also events of their app; a failure
 * is not.
 */
function isDetail({ kind, state, message }: EventMessage): boolean {
  if (kind === "operation.started" || kind === "operation.finished")
    return appOperations.has(message) && ["RUNNING", "SUCCEEDED"].includes(state);
  return detailKinds.has(kind);
}

async function printEvent(context: CommandContext, message: EventMessage): Promise<void> {
  const { EventSchema } = await import("../../../gen/svc/v1/event_pb.ts");
  const { messageToRest } = await import("../client/rest-json.ts");
  const event = messageToRest(EventSchema, message);
  if (context.json) await context.printJsonLine(event);
  else if (event.kind !== "begin") await context.print(eventLine(context, event));
}

/** An event of an app shows the app's status: `2026-03-29 03:00:00 +02:00  app.crashed        hello  CRASHED  the program exited with code 1` */
function eventLine({ paint }: CommandContext, event: Event): string {
  const { time, kind, app_id: appId, subject, message, status } = event;
  const state = kind.startsWith("app.") ? (status ?? event.state) : event.state;
  const at = time === undefined ? "" : inLocalTime(Date.parse(time));
  const text = kind === "reset" ? "some earlier events may be missing" : message;
  const parts = [kind.padEnd(18), appId, subject === appId ? "" : subject, state, text];
  const words = parts.filter((part) => part !== "").map(escapeCell);
  return `${paint("dim", at)}  ${words.join("  ").trimEnd()}\n`;
}
