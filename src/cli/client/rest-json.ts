/** Messages as REST JSON, by the writer that the daemon's REST responses use. */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { JsonWriter } from "../../server/rest/json-writer.ts";
import type { Naming, RestShape } from "./rest-shape.ts";

/** @typeParam Style how the message's service names its fields */
export function messageToRest<Desc extends DescMessage, Style extends Naming = "snake">(
  type: Desc,
  message: MessageShape<Desc>,
): RestShape<MessageShape<Desc>, Style> {
  const text = new JsonWriter().message(type, message);
  return JSON.parse(text) as RestShape<MessageShape<Desc>, Style>;
}
