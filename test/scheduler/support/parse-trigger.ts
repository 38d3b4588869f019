import { TriggerParser, type Trigger } from "../../../src/scheduler/trigger/trigger.ts";

/** A trigger by itself, from a parser that knows no others. */
export function parseTrigger(text: string): Trigger {
  return new TriggerParser().parse(text);
}

/** What is wrong with the text as a trigger; undefined when it is one. */
export function triggerProblem(text: string): string | undefined {
  const read = new TriggerParser().read(text);
  return typeof read === "string" ? read : undefined;
}
