"""Prints what CloudFormation makes of a SAM template, as JSON, without AWS.

The linters look at few of the properties of AWS::Serverless resources; they look at all of what those become.
"""

import json
import os
import sys

# The translator asks for a region and never connects to it.
os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")

from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from samtranslator.yaml_helper import yaml_parse

FUNCTION = "AWS::Serverless::Function"


def transform(template):
    functions = [r for r in template["Resources"].values() if r["Type"] == FUNCTION]
    if not functions:
        sys.exit(f"no {FUNCTION} in the template")
    for function in functions:
        # `sam package` puts the address of the uploaded code here.
        function["Properties"]["CodeUri"] = "s3://code/bootstrap.zip"
    parameters = {
        name: parameter["Default"]
        for name, parameter in template.get("Parameters", {}).items()
        if "Default" in parameter
    }
    return Translator({}, Parser()).translate(template, parameters)


def main():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} TEMPLATE")
    with open(sys.argv[1], encoding="utf-8") as file:
        template = yaml_parse(file.read())
    json.dump(transform(template), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
