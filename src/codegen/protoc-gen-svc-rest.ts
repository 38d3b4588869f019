/**
 * The protoc plugin of this project. It writes
 *
 * - `svc/v1/values.ts`: a constant list and a union type for every closed set of values
 * - `svc/v1/reasons.ts`: the code of every error reason
 * - `svc/v1/methods.ts`: access level and capability of every method
 * - `svc/v1/fields.ts`: the fields that requests ignore, and the lists that requests must have
 * - `svc/v1/routes.ts`: the REST route table
 * - `svc/v1/calls.ts`: the unary calls of REST clients, as plain strings
 * - `svc/v1/services.ts`: every service
 */
import type { DescField, DescFile, DescMethod, DescService } from "@bufbuild/protobuf";
import { createEcmaScriptPlugin, runNodeJs, type GeneratedFile, type Schema } from "@bufbuild/protoplugin";
import type { Route } from "../server/rest/router.ts";
import { collectRoutes } from "./collect-routes.ts";
import { readContractOptions, type ContractOptions } from "./contract-options.ts";
import { collectValueLists, withNested, type ValueList } from "./value-lists.ts";

const packageName = "svc.v1";

export const plugin = createEcmaScriptPlugin({ name: "protoc-gen-svc-rest", version: "v1", generateTs });

if (import.meta.main) runNodeJs(plugin);

function generateTs(schema: Schema): void {
  const files = schema.files.filter((file) => file.proto.package === packageName);
  const services = files.flatMap((file) => file.services);
  const options = readContractOptions(schema.allFiles);

  printValues(
    openFile(schema, "values"),
    collectValueLists(files, (field) => {
      const reasons = options.reasons(field).map(({ word }) => word);
      return reasons.length === 0 ? options.rules(field) : { in: reasons };
    }),
  );
  printReasons(openFile(schema, "reasons"), files, options);
  printMethods(openFile(schema, "methods"), services, options);
  printFields(openFile(schema, "fields"), files, options);
  const routes = collectRoutes(services, (method) => options.httpRule(method));
  printRoutes(openFile(schema, "routes"), routes);
  printCalls(openFile(schema, "calls"), routes);
  printServices(openFile(schema, "services"), services);
}

function openFile(schema: Schema, name: string): GeneratedFile {
  const file = schema.generateFile(`${packageName.replaceAll(".", "/")}/${name}.ts`);
  file.print("// Generated from proto/ by src/codegen/protoc-gen-svc-rest.ts; `npm run gen` writes it.");
  file.print();
  return file;
}

function printValues(f: GeneratedFile, lists: readonly ValueList[]): void {
  for (const { listName, typeName, values, field } of lists) {
    f.print("/** Values of `", field.parent.typeName, ".", field.name, "`. */");
    f.print(f.export("const", listName), " = ", JSON.stringify(values), " as const;");
    f.print(f.export("type", typeName), " = (typeof ", listName, ")[number];");
    f.print();
  }
}

function printReasons(f: GeneratedFile, files: readonly DescFile[], options: ContractOptions): void {
  const reasons = fieldsOf(files).flatMap((field) => options.reasons(field));
  f.print("/** Code of every reason, and its HTTP status if it does not follow from the code. */");
  f.print(f.export("const", "reasonRules"), " = {");
  for (const { word, code, status } of reasons)
    f.print("  ", word, ": ", JSON.stringify({ code, status }), ",");
  f.print("} as const;");
}

function printMethods(f: GeneratedFile, services: readonly DescService[], options: ContractOptions): void {
  f.print("/** Access level of a method, and its capability (empty: part of the base). */");
  f.print(f.export("interface", "MethodPolicy"), " {");
  f.print('  readonly access: "USER" | "ROOT" | "PRIMARY" | "PEER" | "CODE";');
  f.print("  readonly capability: string;");
  f.print("}");
  f.print();
  f.print("/** Every method of the contract by its full name, such as `svc.v1.AppService/ListApps`. */");
  f.print(f.export("const", "methodPolicies"), " = {");
  for (const method of services.flatMap((service) => service.methods)) {
    const access = options.access(method);
    if (access === undefined) {
      throw new Error(
        `${method.parent.typeName}.${method.name}: option (svc.v1.access) is missing; set an access level`,
      );
    }
    const policy = { access, capability: options.capability(method) };
    f.print("  ", JSON.stringify(fullName(method)), ": ", JSON.stringify(policy), ",");
  }
  f.print("} as const satisfies Readonly<Record<string, MethodPolicy>>;");
  f.print();
  f.print("/** Full name of a method of the contract. */");
  f.print(f.export("type", "MethodName"), " = keyof typeof methodPolicies;");
}

function printFields(f: GeneratedFile, files: readonly DescFile[], options: ContractOptions): void {
  const fields = fieldsOf(files);
  const printSet = (name: string, comment: string, isMember: (field: DescField) => boolean): void => {
    f.print("/** ", comment, " */");
    f.print(f.export("const", name), ": ReadonlySet<string> = new Set([");
    for (const field of fields.filter(isMember))
      f.print("  ", JSON.stringify(`${field.parent.typeName}.${field.name}`), ",");
    f.print("]);");
  };
  printSet("outputOnlyFields", "Fields that requests may have, but that are ignored there.", (field) =>
    options.isOutputOnly(field),
  );
  f.print();
  printSet(
    "statedFields",
    "Lists that requests must have, even if they are empty.",
    (field) => options.rules(field)?.stated === true,
  );
}

function fieldsOf(files: readonly DescFile[]): DescField[] {
  return files.flatMap((file) => [...withNested(file.messages)].flatMap((message) => message.fields));
}

function printRoutes(f: GeneratedFile, routes: readonly Route[]): void {
  const routeType = f.import("Route", "../src/server/rest/router.ts", true);
  f.print("/** Every REST route of the contract, with parsed templates. */");
  f.print(f.export("const", "routes"), ": readonly ", routeType, "[] = [");
  for (const { httpMethod, template, method, body, responseBody } of routes) {
    f.print("  {");
    f.print("    httpMethod: ", JSON.stringify(httpMethod), ",");
    f.print("    template: ", JSON.stringify(template), ",");
    // A getter, so that the descriptors of a service are decoded only for its first request.
    f.print(
      "    get method() { return ",
      f.importSchema(method.parent),
      ".method.",
      method.localName,
      "; },",
    );
    f.print("    body: ", JSON.stringify(body), ",");
    f.print("    responseBody: ", JSON.stringify(responseBody), ",");
    f.print("  },");
  }
  f.print("];");
}

/** Plain strings, because loading the descriptors takes as long as starting Node, and a client does not need them. */
function printCalls(f: GeneratedFile, routes: readonly Route[]): void {
  const calls = new Map<string, Route>();
  for (const route of routes.filter(isPlainCall)) {
    const { method } = route;
    const other = calls.get(method.localName)?.method;
    if (other !== undefined && other !== method)
      throw new Error(`${fullName(method)} and ${fullName(other)} would have the same call name`);
    // A method with several bindings uses the first, or the one with a body if its request has a secret.
    const isSecret = method.input.fields.some((field) => field.proto.options?.debugRedact === true);
    if (other === undefined || (isSecret && route.body !== "")) calls.set(method.localName, route);
  }
  f.print("/** Unary JSON methods of REST by name, each with one binding as plain strings. */");
  f.print(f.export("const", "restCalls"), " = {");
  for (const [name, { method, httpMethod, template, body }] of calls) {
    const call = { service: method.parent.typeName, method: name, httpMethod, path: template.source, body };
    f.print("  ", name, ": ", JSON.stringify(call), ",");
  }
  f.print("} as const;");
  f.print();
  f.print("/** Types of the methods above, and how their messages name fields in JSON. */");
  f.print(f.export("interface", "RestMethods"), " {");
  for (const [name, { method }] of calls) {
    const service = f.importSchema(method.parent, true);
    const naming = JSON.stringify(namingOf(method.parent.file));
    f.print(
      "  ",
      name,
      ": { method: (typeof ",
      service,
      ')["method"]["',
      name,
      '"]; naming: ',
      naming,
      " };",
    );
  }
  f.print("}");
}

/** Whether a call is unary JSON, with its request in the path, the query or the whole body. */
function isPlainCall({ method, template, body, responseBody }: Route): boolean {
  const isRaw = [method.input, method.output].some(({ typeName }) => typeName === "google.api.HttpBody");
  const isPlainPath = template.variables.every(({ fieldPath, multi }) => fieldPath.length === 1 && !multi);
  return (
    method.methodKind === "unary" && !isRaw && isPlainPath && ["", "*"].includes(body) && responseBody === ""
  );
}

/** How most field names of a file are written. A file may use a message of another file with the other naming. */
function namingOf({ messages }: DescFile): "snake" | "camel" {
  const names = [...withNested(messages)].flatMap(({ fields }) => fields.map(({ jsonName }) => jsonName));
  const count = (pattern: RegExp): number => names.filter((name) => pattern.test(name)).length;
  return count(/[A-Z]/) > count(/_/) ? "camel" : "snake";
}

function printServices(f: GeneratedFile, services: readonly DescService[]): void {
  const serviceType = f.import("DescService", "@bufbuild/protobuf", true);
  f.print("/** Every service of the contract with its descriptors. Slow to load. */");
  f.print(f.export("const", "services"), ": readonly ", serviceType, "[] = [");
  for (const service of services) f.print("  ", f.importSchema(service), ",");
  f.print("];");
}

function fullName(method: DescMethod): string {
  return `${method.parent.typeName}/${method.name}`;
}
