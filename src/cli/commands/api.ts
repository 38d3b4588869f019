/** `svc api`: calls any method of the contract. */
import type { DescField, DescMethod } from "@bufbuild/protobuf";
import type { Command } from "commander";
import type { FieldRules } from "../../../gen/svc/v1/rules_pb.ts";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import type { RunCommand } from "../run-command.ts";
import { renderTable } from "../output/table.ts";

interface ApiOptions {
  readonly list?: boolean;
  readonly describe?: boolean;
}

export function addApiCommand(parent: Command, run: RunCommand): void {
  parent
    .command("api")
    .description("call any method of the API")
    .argument("[method]", "such as AppService.GetApp")
    .argument("[request]", "the request as JSON; @FILE reads a file, - reads stdin")
    .option("--list", "list the methods")
    .option("--describe", "show the fields of the method's request and response")
    .addHelpText(
      "after",
      "\nStreaming methods print one line of JSON per message; methods with a request stream read one message per line.\n",
    )
    .action(run(api));
}

async function api(
  context: CommandContext,
  name: string | undefined,
  request: string | undefined,
  options: ApiOptions,
): Promise<void> {
  if (options.list === true) return listMethods(context);
  const { findMethod, meantMethod } = await import("../contract.ts");
  const method = name === undefined ? undefined : findMethod(name);
  if (method === undefined) {
    const problem = name === undefined ? "name a method" : `there is no method "${name}"`;
    const meant = name === undefined ? undefined : meantMethod(name);
    const next = meant === undefined ? "see all with: svc api --list" : `did you mean svc api ${meant}?`;
    throw new UsageError(`${problem}; ${next}`);
  }
  if (options.describe === true) return describe(context, method);
  return call(context, method, request);
}

async function call(context: CommandContext, method: DescMethod, request: string | undefined): Promise<void> {
  const { fromJson } = await import("@bufbuild/protobuf");
  const { messageToRest } = await import("../client/rest-json.ts");
  const requests = (await readRequests(context, method, request)).map((json) => {
    try {
      return fromJson(method.input, json as never);
    } catch (error) {
      throw new UsageError(`the request does not fit ${method.input.name}: ${(error as Error).message}`);
    }
  });
  const streams = method.methodKind === "server_streaming" || method.methodKind === "bidi_streaming";
  for await (const message of context.invoke(method, requests)) {
    const json = messageToRest(method.output, message);
    await (streams ? context.printJsonLine(json) : context.printJson(json));
  }
}

async function readRequests(
  context: CommandContext,
  method: DescMethod,
  request = "{}",
): Promise<readonly unknown[]> {
  let text = request;
  if (request === "-" || request.startsWith("@")) {
    const { readInput } = await import("../input/local-file.ts");
    text = await readInput(context.host, request === "-" ? "-" : request.slice(1));
  }
  const takesStream = method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming";
  const documents = takesStream ? text.split("\n").filter((line) => line.trim() !== "") : [text];
  return documents.map((document) => {
    try {
      return JSON.parse(document) as unknown;
    } catch (error) {
      throw new UsageError(`the request is not valid JSON: ${(error as Error).message}`);
    }
  });
}

async function listMethods(context: CommandContext): Promise<void> {
  const { methodName } = await import("../contract.ts");
  const { services } = await import("../../../gen/svc/v1/services.ts");
  const { methodPolicies } = await import("../../../gen/svc/v1/methods.ts");
  const policies: Readonly<Record<string, { access: string; capability: string }>> = methodPolicies;
  const rows = services
    .flatMap((service) => service.methods)
    .map((method) => ({
      method: methodName(method),
      kind: method.methodKind,
      access: policies[`${method.parent.typeName}/${method.name}`]?.access ?? "",
      capability: policies[`${method.parent.typeName}/${method.name}`]?.capability ?? "",
    }));
  if (context.json) return context.printJson({ methods: rows });
  return context.printTable(
    [
      { title: "METHOD", value: (row) => row.method },
      { title: "KIND", value: (row) => row.kind.replace("_", " ") },
      { title: "ACCESS", value: (row) => row.access.toLowerCase() },
      { title: "CAPABILITY", value: (row) => row.capability },
    ],
    rows,
  );
}

interface FieldRow {
  readonly field: string;
  readonly type: string;
  readonly required: boolean;
  readonly rules: string;
}

async function describe(context: CommandContext, method: DescMethod): Promise<void> {
  const { getOption, hasOption } = await import("@bufbuild/protobuf");
  const { rules: rulesExtension } = await import("../../../gen/svc/v1/rules_pb.ts");
  const { FieldBehavior, field_behavior } = await import("../../../gen/google/api/field_behavior_pb.ts");
  const describeField = (field: DescField): FieldRow => ({
    field: field.jsonName,
    type: typeName(field),
    required: getOption(field, field_behavior).includes(FieldBehavior.REQUIRED),
    rules: hasOption(field, rulesExtension) ? rulesText(getOption(field, rulesExtension)) : "",
  });
  const request = method.input.fields.map(describeField);
  const response = method.output.fields.map(describeField);
  if (context.json) return context.printJson({ kind: method.methodKind, request, response });
  for (const [title, type, fields] of [
    ["Request", method.input, request],
    ["Answer", method.output, response],
  ] as const) {
    await context.print(`${context.paint("bold", `${title}: ${type.name}`)}\n`);
    if (fields.length === 0) await context.print("  no fields\n");
    else await context.print(fieldTable(context, fields));
  }
}

function fieldTable(context: CommandContext, fields: readonly FieldRow[]): string {
  return renderTable(
    [
      { title: "  FIELD", value: (row) => `  ${row.field}` },
      { title: "TYPE", value: (row) => row.type },
      { title: "REQUIRED", value: (row) => (row.required ? "yes" : "") },
      { title: "RULES", value: (row) => row.rules, shrinkTo: 16 },
    ],
    fields,
    context.tableStyle,
  );
}

/** `string`, `App`, `list of AppPort`, `map to string` */
function typeName(field: DescField): string {
  const single = field.message?.name ?? field.enum?.name ?? scalarNames[field.scalar ?? 0] ?? "integer";
  if (field.fieldKind === "list") return `list of ${single}`;
  return field.fieldKind === "map" ? `map to ${single}` : single;
}

/** Names by the numbers of google.protobuf.FieldDescriptorProto.Type; all other types are integers. */
const scalarNames: Readonly<Record<number, string>> = {
  1: "number",
  2: "number",
  8: "boolean",
  9: "string",
  12: "bytes",
};

function rulesText(rules: FieldRules): string {
  const { gte, lte, minLen, maxLen, pattern, minItems, maxItems } = rules;
  const bounds = [
    gte === undefined ? "" : `at least ${gte}`,
    lte === undefined ? "" : `at most ${lte}`,
    minLen === undefined ? "" : `${minLen} characters or more`,
    maxLen === undefined ? "" : `${maxLen} characters or fewer`,
    minItems === undefined ? "" : `${minItems} items or more`,
    maxItems === undefined ? "" : `${maxItems} items or fewer`,
    pattern === undefined ? "" : `/${pattern}/`,
    rules.in.length === 0 ? "" : `one of ${rules.in.join(", ")}`,
  ];
  return bounds.filter((text) => text !== "").join(", ");
}
