/**
 * Our protoc plugin. From the contract it writes
 *
 * - `svc/v1/words.ts`: a constant list and a union type for every closed word set,
 * - `svc/v1/methods.ts`: access level and capability of every method,
 * - `svc/v1/fields.ts`: the fields that a request need not or must say, beyond their rules,
 * - `svc/v1/routes.ts`: the REST route table.
 */
import type { DescField, DescFile, DescMethod, DescService } from "@bufbuild/protobuf";
import { createEcmaScriptPlugin, runNodeJs } from "@bufbuild/protoplugin";
import type { GeneratedFile, Schema } from "@bufbuild/protoplugin";
import type { Route } from "../rest/route.ts";
import { collectRoutes } from "./collect-routes.ts";
import { readContractOptions } from "./contract-options.ts";
import type { ContractOptions } from "./contract-options.ts";
import { collectWordLists, withNested } from "./word-lists.ts";
import type { WordList } from "./word-lists.ts";

const packageName = "svc.v1";

runNodeJs(createEcmaScriptPlugin({ name: "protoc-gen-svc-rest", version: "v1", generateTs }));

function generateTs(schema: Schema): void {
  const files = schema.files.filter((file) => file.proto.package === packageName);
  const services = files.flatMap((file) => file.services);
  const options = readContractOptions(schema.allFiles);

  printWords(
    openFile(schema, "words"),
    collectWordLists(files, (field) => options.rules(field)),
  );
  printMethods(openFile(schema, "methods"), services, options);
  printFields(openFile(schema, "fields"), files, options);
  printRoutes(
    openFile(schema, "routes"),
    collectRoutes(services, (method) => options.httpRule(method)),
  );
}

function openFile(schema: Schema, name: string): GeneratedFile {
  const file = schema.generateFile(`${packageName.replaceAll(".", "/")}/${name}.ts`);
  file.print("// Generated from proto/ by src/codegen/protoc-gen-svc-rest.ts; `npm run gen` writes it.");
  file.print();
  return file;
}

function printWords(f: GeneratedFile, lists: readonly WordList[]): void {
  for (const { listName, typeName, words, field } of lists) {
    f.print("/** The words of `", field.parent.typeName, ".", field.name, "`. */");
    f.print(f.export("const", listName), " = ", JSON.stringify(words), " as const;");
    f.print(f.export("type", typeName), " = (typeof ", listName, ")[number];");
    f.print();
  }
}

function printMethods(f: GeneratedFile, services: readonly DescService[], options: ContractOptions): void {
  f.print("/** Who may call a method, and the capability that ships it (empty: part of the base). */");
  f.print(f.export("interface", "MethodPolicy"), " {");
  f.print('  readonly access: "USER" | "ROOT" | "PRIMARY";');
  f.print("  readonly capability: string;");
  f.print("}");
  f.print();
  f.print("/** Every method of the contract by its full name, `svc.v1.AppService/ListApps`. */");
  f.print(f.export("const", "methodPolicies"), " = {");
  for (const method of services.flatMap((service) => service.methods)) {
    const access = options.access(method);
    if (access === undefined) {
      throw new Error(
        `${method.parent.typeName}.${method.name}: option (svc.v1.access) is missing; state who may call it`,
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
  const fields = files.flatMap((file) => [...withNested(file.messages)].flatMap((message) => message.fields));
  const printSet = (name: string, comment: string, isMember: (field: DescField) => boolean): void => {
    f.print("/** ", comment, " */");
    f.print(f.export("const", name), ": ReadonlySet<string> = new Set([");
    for (const field of fields.filter(isMember))
      f.print("  ", JSON.stringify(`${field.parent.typeName}.${field.name}`), ",");
    f.print("]);");
  };
  printSet("outputOnlyFields", "Fields that a request may say and that are ignored there.", (field) =>
    options.isOutputOnly(field),
  );
  f.print();
  printSet(
    "statedFields",
    "Lists that a request must say, though they may be empty.",
    (field) => options.rules(field)?.stated === true,
  );
}

function printRoutes(f: GeneratedFile, routes: readonly Route[]): void {
  const routeType = f.import("Route", "../src/rest/route.ts", true);
  f.print("/** Every REST route of the contract, templates parsed. */");
  f.print(f.export("const", "routes"), ": readonly ", routeType, "[] = [");
  for (const { httpMethod, template, method, body, responseBody } of routes) {
    f.print("  {");
    f.print("    httpMethod: ", JSON.stringify(httpMethod), ",");
    f.print("    template: ", JSON.stringify(template), ",");
    f.print("    method: ", f.importSchema(method.parent), ".method.", method.localName, ",");
    f.print("    body: ", JSON.stringify(body), ",");
    f.print("    responseBody: ", JSON.stringify(responseBody), ",");
    f.print("  },");
  }
  f.print("];");
}

function fullName(method: DescMethod): string {
  return `${method.parent.typeName}/${method.name}`;
}
