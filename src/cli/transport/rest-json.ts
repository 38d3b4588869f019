/** Messages as REST JSON, written by the same writer as the daemon's REST answers. */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { JsonWriter } from "../../rest/json-writer.ts";
import type { Naming, RestShape } from "./rest-shape.ts";

/** @typeParam Style how the message's service names its fields */
export function messageToRest<Desc extends DescMessage, Style extends Naming = "snake">(
  type: Desc,
  message: MessageShape<Desc>,
): RestShape<MessageShape<Desc>, Style> {
  const text = new JsonWriter().message(type, message);
  return JSON.parse(text) as RestShape<MessageShape<Desc>, Style>;
}
