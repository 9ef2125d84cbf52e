"""The messages between the processes of a job: .proto files and what `make proto` generates from them.

Generated with grpcio-tools 1.62 because its output runs with every protobuf from 4.25 on, which is what
TensorFlow 2.15 (protobuf < 5) and the newest TensorFlow (protobuf > 5) can both live with.
"""
