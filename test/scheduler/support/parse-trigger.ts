import { TriggerParser, type Trigger } from "../../../src/scheduler/trigger/trigger.ts";

/** A trigger by itself, from a parser that knows no others. */
export function parseTrigger(text: string): Trigger {
  return new TriggerParser().parse(text);
}
