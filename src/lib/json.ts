/** Values as JSON has them. */
export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject;

/** An object as JSON has it. */
export interface JsonObject {
  [key: string]: JsonValue;
}
