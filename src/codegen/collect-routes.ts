/** Creates the REST route table from `google.api.http`, and rejects bindings that could never work. */
import {
  ScalarType,
  type DescField,
  type DescMessage,
  type DescMethod,
  type DescService,
} from "@bufbuild/protobuf";
import { METHODS } from "node:http";
import type { HttpRule } from "../../gen/google/api/http_pb.ts";
import type { Route } from "../server/rest/router.ts";
import { parseTemplate, type TemplateVariable } from "../server/rest/template.ts";
import { textKindOf } from "../server/rest/text-value.ts";

/** A binding of the contract that cannot be served. The message starts with the method. */
class RouteError extends Error {
  constructor(method: DescMethod, problem: string) {
    super(`${method.parent.typeName}.${method.name}: ${problem}`);
    this.name = "RouteError";
  }
}

/**
 * All routes of `services`, in the order of the contract.
 * @throws RouteError for a bad template, a variable, body or response_body that does not name a suitable field, a body for a
 *   GET or HEAD request, and two routes that match the same requests
 */
export function collectRoutes(
  services: Iterable<DescService>,
  httpRule: (method: DescMethod) => HttpRule | undefined,
): Route[] {
  const routes: Route[] = [];
  const taken = new Map<string, Route>();
  for (const service of services) {
    for (const method of service.methods) {
      const rule = httpRule(method);
      if (rule === undefined) continue;
      for (const binding of [rule, ...rule.additionalBindings]) {
        if (binding !== rule && binding.additionalBindings.length > 0) {
          throw new RouteError(method, "additional_bindings cannot have additional_bindings");
        }
        const route = createRoute(method, binding);
        const shape = `${route.httpMethod} /${route.template.segments.join("/")}:${route.template.verb}`;
        const other = taken.get(shape);
        if (other !== undefined) {
          throw new RouteError(
            method,
            `${route.httpMethod} ${route.template.source} matches the same requests as ` +
              `${other.httpMethod} ${other.template.source} of ${other.method.parent.typeName}.${other.method.name}`,
          );
        }
        taken.set(shape, route);
        routes.push(route);
      }
    }
  }
  return routes;
}

function createRoute(method: DescMethod, rule: HttpRule): Route {
  const [httpMethod, source] = patternOf(method, rule);
  let route: Route;
  try {
    route = {
      httpMethod,
      template: parseTemplate(source),
      method,
      body: rule.body,
      responseBody: rule.responseBody,
    };
  } catch (error) {
    throw new RouteError(method, error instanceof Error ? error.message : String(error));
  }
  for (const variable of route.template.variables) checkVariable(route, variable);
  checkBody(route);
  checkStreams(route);
  return route;
}

function patternOf(method: DescMethod, rule: HttpRule): [httpMethod: string, template: string] {
  const { pattern } = rule;
  if (pattern.case === undefined) throw new RouteError(method, "google.api.http has no path");
  if (pattern.case !== "custom") return [pattern.case.toUpperCase(), pattern.value];
  const { kind, path } = pattern.value;
  if (!METHODS.includes(kind))
    throw new RouteError(method, `the custom kind "${kind}" is not an HTTP method that Node supports`);
  return [kind, path];
}

function checkVariable(route: Route, variable: TemplateVariable): void {
  const name = variable.fieldPath.join(".");
  let message: DescMessage | undefined = route.method.input;
  let field: DescField | undefined;
  for (const part of variable.fieldPath) {
    if (message === undefined) break;
    field = message.fields.find((candidate) => candidate.name === part);
    if (field === undefined) {
      throw new RouteError(route.method, `the path variable "${name}" is not a field of ${message.typeName}`);
    }
    message = field.fieldKind === "message" ? field.message : undefined;
    if (part !== variable.fieldPath.at(-1) && message === undefined) {
      throw new RouteError(
        route.method,
        `the path variable "${name}" goes through "${part}", which is not a message`,
      );
    }
  }
  const isSingle = field !== undefined && field.fieldKind !== "list" && textKindOf(field) !== undefined;
  if (!isSingle) {
    throw new RouteError(route.method, `the path variable "${name}" is not a single value`);
  }
  if (variable.multi && field?.fieldKind === "scalar" && field.scalar !== ScalarType.STRING) {
    throw new RouteError(
      route.method,
      `the path variable "${name}" matches several segments, so it must be a string`,
    );
  }
}

function checkBody({ method, body, responseBody, httpMethod, template }: Route): void {
  if (body !== "" && (httpMethod === "GET" || httpMethod === "HEAD")) {
    throw new RouteError(method, `${httpMethod} requests cannot have a body`);
  }
  if (body !== "" && body !== "*") {
    if (!method.input.fields.some((field) => field.name === body)) {
      throw new RouteError(method, `body "${body}" is not a field of ${method.input.typeName}`);
    }
    if (template.variables.some((variable) => variable.fieldPath.join(".") === body)) {
      throw new RouteError(method, `"${body}" is both the body and a path variable`);
    }
  }
  if (responseBody !== "" && !method.output.fields.some((field) => field.name === responseBody)) {
    throw new RouteError(
      method,
      `response_body "${responseBody}" is not a field of ${method.output.typeName}`,
    );
  }
}

/** REST supports a stream of requests only as raw bytes, and does not support streams in both directions. */
function checkStreams({ method, body }: Route): void {
  if (method.methodKind === "bidi_streaming") {
    throw new RouteError(method, "a stream in both directions cannot have a REST route");
  }
  if (method.methodKind !== "client_streaming") return;
  const bodyField = method.input.fields.find((field) => field.name === body);
  const bodyMessage = body === "*" ? method.input : bodyField?.message;
  if (bodyMessage?.typeName !== "google.api.HttpBody") {
    throw new RouteError(
      method,
      "a stream of requests needs a google.api.HttpBody as its body to have a REST route",
    );
  }
}
