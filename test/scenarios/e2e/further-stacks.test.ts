/** Stacks with keys of compose that the others do not have. */
import { testClassicStacks, testStacks } from "../../support/stack-life.ts";
import { furtherStacks } from "../../support/further-stacks.ts";

testStacks(furtherStacks);
testClassicStacks(furtherStacks);
