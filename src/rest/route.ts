/** What the generated route table is made of. */
import type { DescMethod } from "@bufbuild/protobuf";
import type { Template } from "./template.ts";

/** One binding of a method to an HTTP method and a path, from `google.api.http` or one of its `additional_bindings`. */
export interface Route {
  /** Upper-case HTTP method. */
  readonly httpMethod: string;
  readonly template: Template;
  readonly method: DescMethod;
  /** Name of the request field that the body fills; `*` for all that the path leaves; empty for no body. */
  readonly body: string;
  /** Name of the response field that is the whole answer; empty for the response itself. */
  readonly responseBody: string;
}
