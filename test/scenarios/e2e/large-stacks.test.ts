/** Large stacks, with keys and variables that others do not have. */
import { largeStacks } from "../../support/large-stacks.ts";
import { testClassicStacks, testStacks } from "../../support/stack-life.ts";

testStacks(largeStacks);
testClassicStacks(largeStacks);
