/** The stacks that most people bring first. */
import { testClassicStacks, testStacks } from "../../support/stack-life.ts";
import { popularStacks } from "../../support/popular-stacks.ts";

testStacks(popularStacks);
testClassicStacks(popularStacks);
