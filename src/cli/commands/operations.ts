/**
 * `svc operations ls|logs|wait|cancel`: the daemon's long-running operations, including those finished within
 * the last day.
 */
import { Option, type Command } from "commander";
import type { Operation as OperationMessage } from "../../../gen/svc/v1/operation_pb.ts";
import { ListOperationsRequestStates } from "../../../gen/svc/v1/values.ts";
import { SvcError, knownReason } from "../../errors.ts";
import type { CommandContext } from "../context.ts";
import { examples } from "../examples.ts";
import { progressLine, progressStep } from "../output/follow-progress.ts";
import { forEachName } from "../for-each.ts";
import { pagesOf } from "../pages.ts";
import type { RunCommand } from "../run-command.ts";
import type { Color } from "../output/color.ts";
import type { Column } from "../output/table.ts";
import { formatAge } from "../output/units.ts";
import { calls, type Operation } from "../client/calls.ts";
import { watchable, watchOption } from "../output/watched.ts";

interface ListOptions {
  readonly app?: string;
  readonly state?: string;
}

export function addOperationsCommand(parent: Command, run: RunCommand): void {
  const command = parent.command("operations").description("list, follow and cancel long work of the daemon");
  command
    .command("ls", { isDefault: true })
    .alias("list")
    .description("list running operations, and those finished within the last day")
    .option("--app <app>", "only operations of this app")
    .addOption(
      new Option("--state <state>", "only operations in this state")
        .choices(ListOperationsRequestStates.map((state) => state.toLowerCase()))
        .argParser((state) => state.toLowerCase()),
    )
    .option(...watchOption)
    .addHelpText("after", examples("svc operations ls", "svc operations ls --app hello --state failed"))
    .action(run(watchable(list)));
  command
    .command("logs")
    .description("print the last lines of an operation")
    .argument("<operation>", "operation ID")
    .option("-f, --follow", "print new lines until the operation has finished")
    .addHelpText("after", examples("svc operations logs 3f9a1c04d2b7", "svc operations logs -f 3f9a1c04d2b7"))
    .action(run(logs));
  command
    .command("wait")
    .description("wait until operations have finished; fails if one of them fails")
    .argument("<operation...>", "operation IDs")
    .addHelpText("after", examples("svc operations wait $(svc install hello --detach)"))
    .action(run(wait));
  command
    .command("cancel")
    .description("cancel and undo running operations")
    .argument("<operation...>", "operation IDs")
    .addHelpText("after", examples("svc operations cancel 3f9a1c04d2b7"))
    .action(run(cancel));
}

const stateColors: Readonly<Record<string, Color>> = {
  RUNNING: "yellow",
  SUCCEEDED: "green",
  FAILED: "red",
  INTERRUPTED: "red",
};

async function list(context: CommandContext, { app = "", state = "" }: ListOptions): Promise<void> {
  const operations: Operation[] = [];
  const request = { app_id: app, state: state.toUpperCase() };
  for await (const page of pagesOf(context, calls.listOperations, request))
    operations.push(...page.operations);
  if (context.json) return context.printJson({ operations });
  const now = context.host.now();
  const columns: readonly Column<Operation>[] = [
    { title: "ID", value: ({ id }) => id, isKey: true },
    { title: "KIND", value: ({ kind }) => kind },
    { title: "APP", value: ({ app_id: id }) => id, shrinkTo: 8 },
    { title: "STATE", value: (operation) => operation.state, color: (each) => stateColors[each.state] },
    { title: "STARTED", value: ({ started_at: at }) => formatAge(at, now) },
    { title: "CALLER", value: callerText, dispensable: 1 },
    { title: "MESSAGE", value: messageText, shrinkTo: 12, dispensable: 2 },
  ];
  return context.printTable(columns, operations, "No operations within the last day.");
}

function callerText({ caller, caller_name: name }: Operation): string {
  return name === "" ? String(caller) : name;
}

function messageText({ error, state, phase, message }: Operation): string {
  if (error !== undefined) return error.message;
  if (state !== "RUNNING") return "";
  return [phase, message].filter((text) => text !== "").join(": ");
}

async function logs(
  context: CommandContext,
  id: string,
  { follow = false }: { follow?: boolean },
): Promise<void> {
  if (!follow) {
    const { log } = await context.call(calls.getOperation, { id });
    if (context.json) return context.printJson(log);
    for (const { phase, text } of log) await context.printLine(text || phase);
    return;
  }
  const { OperationLineSchema } = await import("../../../gen/svc/v1/operation_pb.ts");
  const { messageToRest } = await import("../client/rest-json.ts");
  for await (const event of eventsOf(context, id)) {
    if (event.case !== "line") continue;
    if (context.json) await context.printJsonLine(messageToRest(OperationLineSchema, event.value));
    else await context.printLine(event.value.text || event.value.phase);
  }
}

/** The events of an operation, each line once, even across a restart of the daemon. */
async function* eventsOf(context: CommandContext, id: string) {
  const { OperationService } = await import("../../../gen/svc/v1/operation_pb.ts");
  let after = 0;
  for await (const { event } of context.follow(OperationService.method.streamOperation, () => ({
    id,
    after,
  }))) {
    if (event.case === "line") after = event.value.number;
    yield event;
  }
}

async function wait(context: CommandContext, ids: readonly string[]): Promise<void> {
  await forEachName(context, ids, {
    call: async (id) => {
      const last = await finished(context, id);
      if (last.state === "SUCCEEDED") return context.call(calls.getOperation, { id });
      throw errorOf(id, last);
    },
    text: ({ id, kind, app_id: app }) => `Operation ${id} (${[kind, app].join(" ").trimEnd()}) has finished`,
  });
}

async function finished(context: CommandContext, id: string): Promise<OperationMessage> {
  using line = progressLine(context, `operation ${id}`);
  let last: OperationMessage | undefined;
  for await (const event of eventsOf(context, id)) {
    if (event.case !== "operation") continue;
    last = event.value;
    if (last.state === "RUNNING") line.update(progressStep(last));
  }
  if (last === undefined) throw new SvcError("internal", `operation ${id}: the daemon gave no state`);
  return last;
}

function errorOf(id: string, { state, error }: OperationMessage): SvcError {
  const reason = knownReason(error?.detail?.reason, error?.code);
  const message = error?.message ?? "the daemon gave no reason";
  return new SvcError(reason, `operation ${id} ended as ${state}: ${message}`);
}

async function cancel(context: CommandContext, ids: readonly string[]): Promise<void> {
  await forEachName(context, ids, {
    call: (id) => context.call(calls.cancelOperation, { id }),
    text: ({ id }) => `Canceling operation ${id}`,
  });
}
